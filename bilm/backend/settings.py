"""Settings that need no backend: the known backends, the use of XLA, threads, and sizes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from pathlib import Path

from bilm.errors import Result

LIBRARIES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
"""The name of each backend's library in messages, by Keras's name of the backend; the default comes first."""


xla_is_on = True


def use_xla(wanted: bool) -> None:
    """Turn XLA compilation of the LSTM on or off; by default it is on where XLA works.

    Results agree to the precision of float32; without XLA training is slower. The setting holds for
    the whole process and affects models that have not run yet.

    Args:
        wanted: False turns XLA off.

    Example:
        >>> from bilm import use_xla
        >>> use_xla(False)  # for models made after this
        >>> use_xla(True)
    """
    global xla_is_on
    xla_is_on = wanted


@contextmanager
def without_xla() -> Iterator[None]:
    """Turn XLA off until the end of the block, see `use_xla`."""
    before = xla_is_on
    use_xla(False)
    try:
        yield
    finally:
        use_xla(before)


is_portable = ContextVar("portable", default=False)


def portably(function: Callable[..., Result], *args: object) -> Result:
    """Call a function that builds a graph without XLA, for any runtime and any batch size."""
    context = copy_context()
    context.run(is_portable.set, True)
    return context.run(function, *args)


def cores_of_an_operation(n_cores: int) -> int:
    """Return on how many cores TensorFlow runs an operation: half of all, rounded up.

    The two directions of the biLM then run at the same time, which on two cores is faster than to divide the
    operations of both.
    """
    return (n_cores + 1) // 2


def use_threads(n: int) -> None:
    """Choose the number of TensorFlow's threads, before it is imported; see `cores_of_an_operation`."""
    within = cores_of_an_operation(n)
    os.environ |= {"TF_NUM_INTRAOP_THREADS": str(within), "TF_NUM_INTEROP_THREADS": str(n)}


def multiplies_bfloat16() -> bool:
    """Return False for a processor whose flags name no instruction for it: AVX512-BF16, AMX or ARM's."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:  # not Linux
        return True
    return any(name in flags.split() for name in ("avx512_bf16", "amx_bf16", "bf16"))


def read_at_import() -> dict[str, str]:
    """Return environment variables that TensorFlow reads as it is imported: the user's values, or bilm's.

    oneDNN multiplies faster, and by default only on processors with AVX-512.
    """
    values = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if os.uname().machine == "x86_64":
        values["TF_ENABLE_ONEDNN_OPTS"] = "1"
    return {name: os.environ.get(name, value) for name, value in values.items()}


def memory_bytes(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its control group.

    Containers and schedulers of clusters set such limits.

    Args:
        groups: file with the groups of the process.
        root: directory of all groups.
    """
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # not Linux
        for line in Path(groups).read_text().splitlines():
            _, controller, path = line.split(":", 2)
            limit = {"": "{}/memory.max", "memory": "memory{}/memory.limit_in_bytes"}.get(controller, "")
            for group in (path, *Path(path).parents):  # a container sees its group as the root
                with suppress(OSError, ValueError):  # of another controller, or "max": no limit
                    sizes.append(int(Path(root, limit.format(group).strip("/")).read_text()))
    return min(sizes)


WORDS_AT_ONCE = 1024
"""Words in one pass of the convolutions, whose results take up to 200 kB per word and 1000 filters."""
TOKENS_AT_ONCE = 3072
"""Tokens whose inputs are multiplied with the kernel at once: 4 * dim numbers each in memory."""


def power_of_two(number: int) -> int:
    """Round a size up to a power of two, so that few sizes are compiled."""
    return 1 << max(number - 1, 0).bit_length()
