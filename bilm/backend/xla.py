"""Functions that XLA compiles if it works, and that TensorFlow otherwise runs operation by operation."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from bilm.backend import settings

_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")


def device_type() -> str:
    """Return the type of the device in use, ``CPU`` or ``GPU``."""
    with tf.init_scope():
        return str(tf.DeviceSpec.from_string(tf.identity(tf.zeros([1])).device).device_type)


@functools.cache
def _works(device: str) -> bool:
    with tf.init_scope():
        step = tf.function(lambda x: tf.sigmoid(tf.tanh(tf.matmul(x, x))), jit_compile=True, autograph=False)
        try:
            return bool(step(tf.ones([2, 2])).numpy().any())
        except (tf.errors.OpError, NotImplementedError, RuntimeError, ValueError) as error:
            _LOG.warning(
                "XLA cannot compile on this %s (%s); without it the results are the same, and training "
                "is slower. For a GPU it needs libdevice and ptxas of the CUDA toolkit: pip install "
                "'tensorflow[and-cuda]', or install the toolkit and set "
                "XLA_FLAGS=--xla_gpu_cuda_data_dir=DIRECTORY to the toolkit's directory, which has "
                "nvvm/libdevice in it. --no-xla, or bilm.use_xla(False), ends this warning",
                device,
                str(error).strip().partition("\n")[0].strip(),
            )
            return False


def compiles() -> bool:
    """Return True if XLA is wanted and works on the device in use.

    The first call on a type of device compiles the operations of an LSTM step as a trial; on a GPU
    exponentials need libdevice. If the trial fails, a warning names the reason and the remedy.
    """
    return settings.xla_is_on and not settings.is_portable.get() and _works(device_type())


def compiles_loops() -> bool:
    """Return True if XLA is to compile the loop over an LSTM's steps, products included.

    On GPUs the launches of operations take longer than what they compute; CPUs are faster with TensorFlow's
    products.
    """
    return compiles() and device_type() == "GPU"


def compiled(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Let XLA compile a function of tensors of known shapes if `compiles` is true."""
    with_xla = tf.function(function, jit_compile=True, autograph=False)
    without = tf.function(function, autograph=False)

    @functools.wraps(function)
    def run(*args: Any) -> _Result:  # noqa: ANN401
        if settings.is_portable.get():
            return function(*args)
        return (with_xla if compiles() else without)(*args)

    return run
