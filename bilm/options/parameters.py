"""Parameters described as dataclass fields, and the enumerations of their choices.

The annotation of a field gives its type, with `Bounds` or choices; its metadata the rest. Command-line flags,
checks of Python arguments and the tables of ``docs/options.md`` are generated from them.
"""

import dataclasses
import enum
import functools
import re
import unicodedata
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

from bilm.errors import OptionsError
from bilm.io.json_objects import Bounds, annotations

Value = TypeVar("Value")
REQUIRED: Any = dataclasses.MISSING


class Parameter(NamedTuple):
    """A parameter of a command or function.

    Attributes:
        name: name of the field.
        kind: ``int``, ``float``, ``bool``, a `Choice` or another type; an optional type without None.
        bounds: bounds of a number.
        default: default value; ``dataclasses.MISSING`` if a value is required.
        meaning: description; its first sentence is the help text of the flag.
        flag: the parameter is a command-line flag and a Python argument.
        key: dotted key in its section of ``options.json`` if it differs from the name.
        shown: words for the value used without the flag; None to show the default.
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
        """Help text of the flag: the first sentence of the meaning."""
        sentence = self.meaning.partition(". ")[0].removesuffix(".")
        return f"{sentence[0].upper()}{sentence[1:]}."


def parameter(
    default: Value, meaning: str, *, flag: bool = False, key: str | None = None, shown: str | None = None
) -> Value:
    """Return a dataclass field that describes a parameter; see `Parameter` for the arguments.

    The default is `REQUIRED` for a parameter that must be given.
    """
    metadata = {"meaning": meaning, "flag": flag, "key": key, "shown": shown}
    field: Any = dataclasses.field(default=default, metadata=metadata)
    return field


def flag(default: Value, meaning: str, shown: str | None = None) -> Value:
    """Return a `parameter` that is also a command-line flag and a Python argument."""
    return parameter(default, meaning, flag=True, shown=shown)


@functools.cache
def parameters(record: type) -> Mapping[str, Parameter]:
    """Return the parameters that a dataclass describes, by field name."""
    by_name = {}
    for field in dataclasses.fields(record):
        kind, bounds = annotations(record)[field.name], Bounds()
        if get_origin(kind) in (Union, UnionType):
            kind = next(inner for inner in get_args(kind) if inner is not NoneType)
        if get_origin(kind) is Annotated:
            kind, bounds = get_args(kind)
        if field.metadata:
            kind = get_origin(kind) or kind
            by_name[field.name] = Parameter(field.name, kind, bounds, field.default, **field.metadata)
    return by_name


class Choice(enum.StrEnum):
    """Base class of enumerations of strings; a member equals its string.

    Raises:
        OptionsError: the value is not a member; the message lists the members.
    """

    @classmethod
    def values(cls) -> list[str]:
        """Return the strings of all members."""
        return [member.value for member in cls]

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        raise OptionsError(f"`{name}` is {value!r:.80}, not one of {', '.join(cls.values())}")


class Activation(Choice):
    """Activation of the character convolutions."""

    RELU = "relu"
    TANH = "tanh"


class SoftmaxBiasInit(Choice):
    """Initial values of the softmax biases."""

    UNIGRAM = "unigram"
    ZEROS = "zeros"


class SoftmaxRowInit(Choice):
    """Initial rows of the softmax, see `bilm.training.cooccurrence`."""

    COOCCURRENCE = "cooccurrence"
    RANDOM = "random"


class UnicodeForm(Choice):
    """Unicode's normal forms of text."""

    NFC = "NFC"
    NFD = "NFD"
    NFKC = "NFKC"

    def is_of(self, text: str) -> bool:
        """Return true if a text, and so each part of it, has the form."""
        return unicodedata.is_normalized(self.value, text)  # type: ignore[arg-type]

    def of_text(self, text: str) -> str:
        """Return a text in the form, with the same words, as white space separates them."""
        if self.is_of(text):
            return text
        if self is UnicodeForm.NFKC:  # its spaces before single accents are left out
            text = re.sub(r"\S+", lambda word: "".join(self._normalize(word[0]).split()), text)
        return self._normalize(text)

    def _normalize(self, text: str) -> str:
        return unicodedata.normalize(self.value, text)  # type: ignore[arg-type]  # one of four literals


def normaliser(form: UnicodeForm | None) -> Callable[[str], str]:
    """Return a function that puts texts into a form; None leaves them as they are."""
    return str if form is None else form.of_text


class Optimizer(Choice):
    """Optimizers by name; all except Adagrad and Muon are Keras's, with their default settings."""

    ADAGRAD = "adagrad"
    ADAFACTOR = "adafactor"
    ADAM = "adam"
    LION = "lion"
    MUON = "muon"
    RMSPROP = "rmsprop"
    SGD = "sgd"

    @property
    def default_learning_rate(self) -> float:
        """Default learning rate: bilm-tf's for Adagrad, the recipes' for Muon, otherwise a usual one."""
        rates = {Optimizer.ADAGRAD: 0.2, Optimizer.SGD: 1.0, Optimizer.LION: 1e-4, Optimizer.MUON: 0.006}
        return rates.get(self, 1e-3)


class Decay(Choice):
    """Decay of the learning rate after the warm-up."""

    NONE = "none"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_SQRT = "inverse_sqrt"


class Recipe(Choice):
    """Recipes: named sets of training hyper-parameters, see `bilm.options.recipes`."""

    BILM_TF = "bilm-tf"
    ONE_PASS = "one-pass"
    SEVERAL_PASSES = "several-passes"
    MANY_PASSES = "many-passes"


class Precision(Choice):
    """Data type of the factors and results of matrix products; variables, sums and losses are float32.

    ``tf32`` is float32 with products that NVIDIA GPUs since Ampere compute with 10 bits of mantissa, several
    times as fast; other devices use float32. ``float32`` switches it off in commands, `train`, `restart` and
    `test`; elsewhere TensorFlow's own setting holds, which is on. With ``float16`` training scales the loss,
    because gradients would underflow otherwise.
    """

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def product_dtype(self) -> str:
        """TensorFlow's name of the data type."""
        return "float32" if self is Precision.TF32 else self.value


class Freeze(Choice):
    """Part of a model that a restart does not train."""

    ENCODER = "encoder"
    SOFTMAX = "softmax"
    NONE = "none"


class Compat(Choice):
    """Another program whose perplexity a test reproduces."""

    BILM_TF = "bilm-tf"


class Context(Choice):
    """Words from which a word is predicted: those to its left, to its right, or both."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


class Pooling(Choice):
    """Vector of a sentence: the mean of the vectors of its words, or the largest value in each dimension."""

    MEAN = "mean"
    MAX = "max"
