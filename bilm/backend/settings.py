"""Choices made before a backend is loaded: which there are, whether XLA is used; sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LIBRARIES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
"""By Keras's name of the backend, the name of its library in messages; the default comes first."""


xla_is_on = True


def use_xla(wanted: bool) -> None:
    """Let XLA compile the loops of the LSTM, as it does by default where it works, or not.

    Results agree to the precision of float32. Without XLA training is slower. It counts for models that
    have not run yet, in the whole process.

    Args:
        wanted: False to do without XLA.

    Example:
        >>> from bilm import use_xla
        >>> use_xla(False)  # for the models made from here on
        >>> use_xla(True)
    """
    global xla_is_on
    xla_is_on = wanted


@contextmanager
def without_xla() -> Iterator[None]:
    """As `use_xla` with False, until the end of the block."""
    before = xla_is_on
    use_xla(False)
    try:
        yield
    finally:
        use_xla(before)


is_portable = ContextVar("portable", default=False)


@contextmanager
def portable() -> Iterator[None]:
    """Build graphs of TensorFlow's own operations, for runtimes that may have no XLA, and any batch size."""
    token = is_portable.set(True)
    try:
        yield
    finally:
        is_portable.reset(token)


WORDS_AT_ONCE = 1024
"""Words taken through the convolutions together: results take up to 200 kB a word and 1000 filters."""
TOKENS_AT_ONCE = 3072
"""Tokens whose share of the gates is held in memory: 4 * dim numbers each."""


def power_of_two(number: int) -> int:
    """The smallest that is no smaller, so that what is compiled anew for each size has few sizes."""
    return 1 << max(number - 1, 0).bit_length()
