"""bilm-tf's module of this name: `bilm.weight_layers`."""

from __future__ import annotations

from bilm.layers.scalar_mix import weight_layers

__all__ = ["weight_layers"]
