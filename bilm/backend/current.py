"""The module of the backend that Keras runs on: what each of them does in its own way.

Each of ``on_tensorflow``, ``on_torch`` and ``on_jax`` has

- ``run_lstm``: one layer over a window or over whole rows,
- ``gather``: rows of a table by their numbers,
- ``distinct_rows`` and ``encode_in_parts``: each distinct word encoded once, among words of its length,
- ``compiled``: a function for inference, compiled where the backend compiles,
- ``FIXED_SHAPES``: whether it is compiled anew for every shape, so that few shapes should be used,
- ``is_symbolic``: whether a tensor has no values yet; ``asserted``: with a condition for when it has,
- ``portable``: what is built inside can be saved with a user's model,
- ``require_ready``: whether it is in a mode that models can run in,
- ``n_gpus`` and ``device``: the GPUs there are, and a scope of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilm.backend.keras_backend import BACKEND

if TYPE_CHECKING or BACKEND == "tensorflow":
    from bilm.backend import on_tensorflow as backend
elif BACKEND == "torch":
    from bilm.backend import on_torch as backend
else:
    from bilm.backend import on_jax as backend

__all__ = ["backend"]
