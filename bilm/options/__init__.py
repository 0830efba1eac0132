"""Hyper-parameters: typed, frozen, self-validating; presets; files of them."""

from bilm.options.hyper_parameters import (
    PRESETS,
    Activation,
    CharCNNOptions,
    Decay,
    LSTMOptions,
    Optimizer,
    Options,
    Precision,
    SoftmaxBiasInit,
)

__all__ = [
    "Activation",
    "CharCNNOptions",
    "Decay",
    "LSTMOptions",
    "Optimizer",
    "Options",
    "PRESETS",
    "Precision",
    "SoftmaxBiasInit",
]
