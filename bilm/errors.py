"""Exceptions of the package, and checks of simple arguments.

Errors of the user are `BilmError`s, which the command line turns into ``Error: ...`` and exit status 1. Any
other exception is a bug and keeps its traceback.
"""

import functools
import inspect
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ParamSpec, Self, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class BilmError(Exception):
    """Base class of errors caused by input, options or files, never by a bug in the package.

    Attributes:
        problems: the problems that an error about several lists, one string each.
    """

    problems: Sequence[str] = ()

    __init__ = Exception.__init__  # lets TensorFlow raise them unchanged out of a graph

    @classmethod
    def listing(cls, head: str, problems: Iterable[str]) -> Self:
        """Return an error that lists problems below a line."""
        problems = tuple(problems)
        error = cls(f"{head}:\n" + "\n".join(f"  {problem}" for problem in problems))
        error.problems = problems
        return error


class OptionsError(BilmError, ValueError):
    """Hyper-parameters are malformed or unknown, or contradict each other."""


class ArgumentError(OptionsError):
    """Arguments of a call are missing or unknown, or exclude each other."""


class VocabularyError(BilmError, ValueError):
    """A vocabulary file cannot be used, or does not fit the model."""


class DataError(BilmError, ValueError):
    """A text, or another file, is missing or unreadable, has the wrong form, or cannot be written."""


class WeightsError(BilmError, ValueError):
    """A weight file cannot be read, or its arrays are missing, unexpected or misshapen."""


class BackendError(BilmError, ImportError):
    """The Keras backend is not installed, or does not support the operation."""


class DivergenceError(BilmError, ArithmeticError):
    """The loss or the gradient became NaN or infinite during training."""


class CheckpointError(BilmError, ValueError):
    """A run directory or checkpoint is missing, damaged or in the way."""


class LostWorkerError(CheckpointError):
    """Another worker of a training run was lost; the checkpoints remain."""


class ProcessError(BilmError, RuntimeError):
    """The state of a process or its backend does not allow a model to run."""


def require_positive(**numbers: int) -> None:
    """Raise an `OptionsError` for the first argument that is not an integer of at least 1."""
    for name, number in numbers.items():
        if not fits(number, int):
            raise OptionsError(f"{name} is {number!r:.80}; it must be an integer")
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")


def require_flags(**switches: bool | None) -> None:
    """Raise an `ArgumentError` for the first argument that is not True, False or None."""
    for name, value in switches.items():
        require_kind(name, value, bool | None)


def require_words(subject: str, words: Iterable[str], in_order: bool = False) -> list[str]:
    """Return words as a list; a string is not taken for its characters.

    Args:
        subject: what the words are; messages begin with it.
        words: the words.
        in_order: refuse dictionaries and sets, which sentences are not.

    Raises:
        DataError: `words` is a string or an open file, or an item is no string.
    """
    refused = (str, bytes, io.IOBase, *[Mapping, Set] * in_order)
    if isinstance(words, refused) or not isinstance(words, Iterable):
        kind = "a string" if isinstance(words, str) else f"of type {type(words).__name__}"
        raise DataError(f"{subject} is {kind}, not a list of words: {words!r:.80}")
    listed = list(words)
    if not {*map(type, listed)} <= {str}:
        for place, word in enumerate(listed):
            if not isinstance(word, str):
                kind = f"of type {type(word).__name__}"
                raise DataError(f"{subject}, word {place} is {kind}, not a string: {word!r:.80}")
    return listed


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a public function check the kinds of its arguments, which are those of its annotations.

    An argument of another kind is an `ArgumentError` that names it. A boolean is no number, and an empty
    string no path. Iterables and `**arguments` are left to the function, which reads
    their items.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            arguments = {}  # Python says what is wrong, below
        for name, value in arguments.items():
            require_kind(name, value, _annotations(function).get(name, Any))
        return function(*args, **kwargs)

    call.__signature__ = signature  # type: ignore[attr-defined]  # for Keras, which does not unwrap
    return call


_annotations = functools.cache(get_type_hints)
# Kinds of values, in the words of messages.
KIND_WORDS: dict[type, str] = {
    **{bool: "True or False", int: "an integer", float: "a number", str: "a string"},
    **{Mapping: "a dictionary", os.PathLike: "a path"},
}


def require_kind(name: str, value: object, annotation: Any) -> None:  # noqa: ANN401
    """Raise an `ArgumentError` for an argument of another kind than its annotation."""
    is_union = get_origin(annotation) in (Union, UnionType)
    kinds = [get_origin(kind) or kind for kind in (get_args(annotation) if is_union else [annotation])]
    if not {Any, Iterable, Sequence, Unpack}.isdisjoint(kinds):
        return
    is_path = os.PathLike in kinds
    if any(fits(value, kind) for kind in kinds) and not (is_path and value == ""):
        return
    kinds = [kind for kind in kinds if kind is not NoneType and not (is_path and kind is str)]
    words = " or ".join(KIND_WORDS.get(kind, f"of class {kind.__name__}") for kind in kinds)
    raise ArgumentError(f"`{name}` is {value!r:.80}; it must be {words}")


def fits(value: object, kind: type) -> bool:
    """Return whether a value is of a kind; NumPy's numbers are, and booleans are no numbers."""
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)
