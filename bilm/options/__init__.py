"""Hyper-parameters: typed, frozen, self-validating; presets; files of them."""

from bilm.options.hyper_parameters import (
    Activation,
    CharCNNOptions,
    Decay,
    LSTMOptions,
    Optimizer,
    Options,
    Precision,
    Recipe,
    SoftmaxBiasInit,
)
from bilm.options.presets import PRESETS

__all__ = [
    "Activation",
    "CharCNNOptions",
    "Decay",
    "LSTMOptions",
    "Optimizer",
    "Options",
    "PRESETS",
    "Precision",
    "Recipe",
    "SoftmaxBiasInit",
]
