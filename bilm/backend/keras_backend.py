"""Keras, which has to run on TensorFlow: the package imports it from here only."""

from __future__ import annotations

import logging

from bilm.errors import BackendError

_LOG = logging.getLogger(__name__)
_WANTED = "set the environment variable KERAS_BACKEND to tensorflow before Keras is imported"

try:
    import keras
except (ImportError, ValueError) as error:
    # Keras imports the backend that the user has set, which may not be there.
    raise BackendError(f"Keras cannot be imported ({str(error).splitlines()[0]}); {_WANTED}") from error
if keras.config.backend() != "tensorflow":
    raise BackendError(f"Keras runs on {keras.config.backend()}, and bilm needs it on TensorFlow; {_WANTED}")

if keras.config.floatx() != "float32":
    _LOG.warning("Keras' floatx %s is ignored: a biLM's weights are float32", keras.config.floatx())

__all__ = ["keras"]
