"""Closed choices: what may be one of a few names, each with its list; a wrong name is told all of them."""

from __future__ import annotations

import enum
import re
from typing import NoReturn

from bilm.errors import OptionsError


class Choice(str, enum.Enum):
    """One of a few strings; a member is equal to its string.

    Raises:
        OptionsError: another value; lists the members.
    """

    @classmethod
    def values(cls) -> list[str]:
        """The strings."""
        return [member.value for member in cls]

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        raise OptionsError(f"`{name}` is {value!r}, not one of {', '.join(cls.values())}")


class Activation(Choice):
    """Activation of the character convolutions."""

    RELU = "relu"
    TANH = "tanh"


class SoftmaxBiasInit(Choice):
    """Where the softmax biases of a new model start."""

    UNIGRAM = "unigram"
    ZEROS = "zeros"


class Optimizer(Choice):
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


class Decay(Choice):
    """How the learning rate falls after the warm-up."""

    NONE = "none"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_SQRT = "inverse_sqrt"


class Recipe(Choice):
    """Hyper-parameters of training by name, see `bilm.options.recipes`."""

    BILM_TF = "bilm-tf"
    ONE_PASS = "one-pass"
    SEVERAL_PASSES = "several-passes"
    MANY_PASSES = "many-passes"


class Precision(Choice):
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


class Freeze(Choice):
    """Part of a model that a restart leaves as it is."""

    ENCODER = "encoder"
    SOFTMAX = "softmax"
    NONE = "none"


class Weights(Choice):
    """Weights of a run: as the last step left them, or their moving averages."""

    RAW = "raw"
    AVERAGED = "averaged"


class Compat(Choice):
    """The program whose number a test computes instead of ours."""

    BILM_TF = "bilm-tf"


class Layers(Choice):
    """Layers of vectors that have a name: all of them, the top one, or their plain mean."""

    ALL = "all"
    TOP = "top"
    AVERAGE = "average"
