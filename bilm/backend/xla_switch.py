"""Whether XLA is to be used where it works; set without loading TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

is_on = True


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
    global is_on
    is_on = wanted


@contextmanager
def without_xla() -> Iterator[None]:
    """As `use_xla` with False, until the end of the block."""
    before = is_on
    use_xla(False)
    try:
        yield
    finally:
        use_xla(before)
