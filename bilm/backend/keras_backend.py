"""Keras, on the backend that the user has set: the package imports it from here only."""

from __future__ import annotations

import logging
from typing import Any

from bilm.backend.settings import LIBRARIES
from bilm.errors import BackendError

_LOG = logging.getLogger(__name__)

Tensor = Any
"""A tensor of the backend."""

*_FIRST, _LAST = LIBRARIES
_CHOICES = f"{', '.join(_FIRST)} or {_LAST}"
_WANTED = f"set the environment variable KERAS_BACKEND to {_CHOICES} before Keras is imported"

try:
    import keras
except (ImportError, ValueError) as error:
    # Keras imports the backend that the user has set, which may not be there.
    raise BackendError(f"Keras cannot be imported ({str(error).splitlines()[0]}); {_WANTED}") from error
BACKEND: str = keras.config.backend()
"""Which of `bilm.backend.settings.LIBRARIES` it is."""

if BACKEND not in LIBRARIES:
    raise BackendError(f"Keras runs on {BACKEND}, and bilm on {_CHOICES}; {_WANTED}")
if keras.config.floatx() != "float32":
    _LOG.warning("Keras' floatx %s is ignored: a biLM's weights are float32", keras.config.floatx())


def require_tensorflow(what: str) -> None:
    """Refuse what is done on TensorFlow only.

    Args:
        what: begins the message.

    Raises:
        BackendError: Keras runs on another backend.
    """
    if BACKEND != "tensorflow":
        raise BackendError(
            f"{what} needs TensorFlow, and Keras runs on {BACKEND}; set the environment variable "
            "KERAS_BACKEND to tensorflow before Keras is imported"
        )


__all__ = ["BACKEND", "Tensor", "keras", "require_tensorflow"]
