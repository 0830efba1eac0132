"""Hyper-parameters: typed, frozen, self-validating; presets; files of them."""

from bilm.options.hyper_parameters import PRESETS, CharCNNOptions, LSTMOptions, Options
from bilm.options.parameters import (
    Activation,
    Compat,
    Decay,
    Freeze,
    Layers,
    Optimizer,
    Precision,
    Recipe,
    SoftmaxBiasInit,
    Weights,
)

__all__ = [
    "Activation",
    "CharCNNOptions",
    "Compat",
    "Decay",
    "Freeze",
    "LSTMOptions",
    "Layers",
    "Optimizer",
    "Options",
    "PRESETS",
    "Precision",
    "Recipe",
    "SoftmaxBiasInit",
    "Weights",
]
