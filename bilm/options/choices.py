"""The hyper-parameters that are one of a few names: optimizer, schedule, precision, recipe and others."""

from __future__ import annotations

import enum

from bilm.errors import OptionsError


class SoftmaxBiasInit(str, enum.Enum):
    """Where the softmax biases of a new model start."""

    UNIGRAM = "unigram"
    ZEROS = "zeros"


class Optimizer(str, enum.Enum):
    """Optimizers by name; all but Adagrad, Adam and Muon are Keras's with their default settings."""

    ADAGRAD = "adagrad"
    ADAFACTOR = "adafactor"
    ADAM = "adam"
    LION = "lion"
    MUON = "muon"
    RMSPROP = "rmsprop"
    SGD = "sgd"

    @property
    def default_learning_rate(self) -> float:
        """The rate where none is given: bilm-tf's for Adagrad, the recipes' for Muon, else a usual one."""
        rates = {Optimizer.ADAGRAD: 0.2, Optimizer.SGD: 1.0, Optimizer.LION: 1e-4, Optimizer.MUON: 0.006}
        return rates.get(self, 1e-3)


class Decay(str, enum.Enum):
    """How the learning rate falls after the warm-up."""

    NONE = "none"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_SQRT = "inverse_sqrt"


class Recipe(str, enum.Enum):
    """Hyper-parameters of training by name, see `bilm.options.recipes`."""

    BILM_TF = "bilm-tf"
    ONE_PASS = "one-pass"
    SEVERAL_PASSES = "several-passes"
    MANY_PASSES = "many-passes"


class Precision(str, enum.Enum):
    """Type of the factors of matrix products; variables and everything between products are float32.

    ``tf32`` is float32 whose products NVIDIA GPUs since Ampere take with 10 bits of mantissa, several
    times as fast; on other devices it is float32, and with ``float32`` it is switched off. The gradients
    of float16 underflow unless the loss is scaled, which the training does: they scale with it.
    """

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def product_dtype(self) -> str:
        """The type that TensorFlow knows it by."""
        return "float32" if self is Precision.TF32 else self.value

    @classmethod
    def _missing_(cls, value: object) -> Precision:
        known = ", ".join(choice.value for choice in cls)
        raise OptionsError(f"precision: must be one of {known}, got {value!r}")
