"""Parameters as the fields of dataclasses, each described once, where it is defined; closed choices.

The annotation of a field has its type, perhaps with `Bounds`, or its choices; its metadata the rest. The
flags of the commands, the checks of Python arguments and the tables of ``docs/options.md`` are made of these.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from bilm.errors import OptionsError
from bilm.io.json import Bounds

Value = TypeVar("Value")
REQUIRED: Any = dataclasses.MISSING


class Parameter(NamedTuple):
    """One parameter.

    Attributes:
        name: of the field.
        kind: ``int``, ``float``, ``bool``, a `Choice` or another type, None aside.
        bounds: of a number.
        default: ``dataclasses.MISSING`` where a value is required.
        meaning: sentences, the first of which says enough for a flag.
        flag: whether it is a flag and an argument of its own.
        key: in the section of ``options.json``.
        shown: what holds where the flag is not given, in words; None to show the default.
    """

    name: str
    kind: Any
    bounds: Bounds
    default: Any
    meaning: str
    flag: bool
    key: str | None
    shown: str | None

    @property
    def help(self) -> str:
        """The first sentence, for a flag."""
        sentence = self.meaning.partition(". ")[0].removesuffix(".")
        return f"{sentence[0].upper()}{sentence[1:]}."


def parameter(
    default: Value, meaning: str, *, flag: bool = False, key: str | None = None, shown: str | None = None
) -> Value:
    """A field with a default, or `REQUIRED`; for the rest see `Parameter`."""
    metadata = {"meaning": meaning, "flag": flag, "key": key, "shown": shown}
    field: Any = dataclasses.field(default=default, metadata=metadata)
    return field


def flag(default: Value, meaning: str, shown: str | None = None) -> Value:
    """A field that is a flag and an argument of its own; see `Parameter`."""
    return parameter(default, meaning, flag=True, shown=shown)


@functools.cache
def parameters(record: type) -> Mapping[str, Parameter]:
    """The parameters that a dataclass describes, by the names of their fields."""
    hints = get_type_hints(record, include_extras=True)
    found = {}
    for field in dataclasses.fields(record):
        kind, bounds = hints[field.name], Bounds()
        if get_origin(kind) in (Union, UnionType):
            kind = next(inner for inner in get_args(kind) if inner is not NoneType)
        if get_origin(kind) is Annotated:
            kind, bounds = get_args(kind)
        if field.metadata:
            kind = get_origin(kind) or kind
            found[field.name] = Parameter(field.name, kind, bounds, field.default, **field.metadata)
    return found


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


class Context(Choice):
    """The words around a place from which its word is predicted."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


class Layers(Choice):
    """Layers of vectors that have a name: all of them, the top one, or their plain mean."""

    ALL = "all"
    TOP = "top"
    AVERAGE = "average"
