"""The backends of Keras that models run on."""

from __future__ import annotations

LIBRARIES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
"""By Keras's name of the backend, the name of its library in messages; the default comes first."""
