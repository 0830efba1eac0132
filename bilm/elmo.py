"""Alias of bilm-tf's module ``bilm.elmo``; holds `bilm.weight_layers`."""

from bilm.layers.scalar_mix import weight_layers

__all__ = ["weight_layers"]
