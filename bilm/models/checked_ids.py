"""Arguments of the models: ids checked, and the names that AllenNLP and bilm-tf give them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.errors import DataError, OptionsError
from bilm.vocabulary.vocabulary import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, PADDING

_Result = TypeVar("_Result")


def also_takes(renamed: Mapping[str, str]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Let a function take keyword arguments by further names.

    Args:
        renamed: further name -> the name of the argument.
    """

    def decorate(function: Callable[..., _Result]) -> Callable[..., _Result]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> _Result:  # noqa: ANN401
            for theirs in renamed.keys() & kwargs.keys():
                ours = renamed[theirs]
                if ours in kwargs:
                    raise OptionsError(f"{theirs} and {ours} are the same argument; give one of them")
                kwargs[ours] = kwargs.pop(theirs)
            return function(*args, **kwargs)

        return call

    return decorate


_LARGEST_CHARACTER = PADDING + 1  # of `Batcher`: 0 is padding there, and one is added to each id


@dataclass(frozen=True)
class IdKind:
    """Which ids a model takes; 0 is padding.

    Attributes:
        largest: of the ids.
        width: characters of a word; None for word ids.
        has_marks: whether the sentence marks stand around the words.
        nested: whether there may be dimensions between those of the sentences and of the words.
    """

    largest: int
    width: int | None = None
    has_marks: bool = True
    nested: bool = False

    @classmethod
    def characters(cls, width: int, *, has_marks: bool, nested: bool = False) -> IdKind:
        """Make the kind of `bilm.Batcher`, or without marks that of `bilm.batch_to_ids`."""
        return cls(_LARGEST_CHARACTER, width, has_marks, nested)

    def checked(self, ids: Any) -> Any:  # noqa: ANN401
        """The ids as an int32 tensor; those of a Keras model that is being built as they are.

        Raises:
            DataError: they are not whole numbers, or of a type too small for the largest, have another
                shape, are outside their range or no words, have sentence marks that they should not have
                or lack them, or words after padding; or there is no sentence.
        """
        try:
            is_tensor = isinstance(ids, keras.KerasTensor) or keras.ops.is_tensor(ids)
            ids = ids if is_tensor else np.asarray(ids)
        except (TypeError, ValueError) as error:
            raise DataError(f"ids must be an array, with 0 where a sentence has ended: {error}") from error
        self._check_form(ids)
        if isinstance(ids, keras.KerasTensor):
            return ids
        if not backend.is_dense(ids):
            raise DataError(f"{self._form()}, got a tensor without values or a sparse one; {self._maker()}")
        if backend.is_symbolic(ids):
            return self._checked_when_run(ids)
        values = keras.ops.convert_to_numpy(ids)
        self._check_values(values)
        return keras.ops.convert_to_tensor(values.astype(np.int32))

    def check_shape(self, shape: tuple[int | None, ...], of: str = "") -> None:
        """Check the number of dimensions, and the characters of a word.

        Raises:
            DataError: they are not the model's.
        """
        rank = 2 if self.width is None else 3
        is_right = len(shape) == rank or (self.nested and len(shape) > rank)
        if is_right and self.width is not None:
            is_right = shape[-1] in (None, self.width)
        if is_right and self.has_marks:
            is_right = shape[1] is None or shape[1] >= 2
        if not is_right:
            raise DataError(f"{self._form()}, got {of}{shape}; {self._maker()}")

    def _check_form(self, ids: Any) -> None:  # noqa: ANN401
        name = getattr(ids.dtype, "name", ids.dtype)
        shape = tuple(ids.shape) if getattr(ids.shape, "rank", 0) is not None else ("unknown",)
        if not _holds(ids.dtype, 0):
            raise DataError(f"{self._form()}, got {name} {shape}; {self._maker()}")
        if not (_holds(ids.dtype, self.largest) and _holds(ids.dtype, self.largest - 1)):
            raise DataError(
                f"{self._name} ids go up to {self.largest}, which {name} cannot hold; give int32 or int64"
            )
        self.check_shape(shape, f"{name} ")

    def _check_values(self, ids: np.ndarray) -> None:
        n_inner = 2 if self.width else 1
        n_rows = math.prod(ids.shape[:-n_inner])
        if not n_rows:
            raise DataError(f"{self._form()} of at least one row, got {ids.dtype} {ids.shape}")
        if not np.issubdtype(ids.dtype, np.integer):
            fractional = ids.ravel()[np.flatnonzero(ids != np.floor(ids))]
            if len(fractional):
                raise DataError(f"{self._name} ids must be whole numbers, got {fractional[0]}")
        if ids.size and (ids.min() < 0 or ids.max() > self.largest):
            raise DataError(
                f"{self._name} ids must be {self._range()}, got {ids.min()} to {ids.max()}; {self._maker()}"
            )
        rows = ids.reshape(n_rows, *ids.shape[-n_inner:])
        is_token = np.greater(rows, 0).any(axis=-1) if self.width else np.greater(rows, 0)
        if self.width and not np.isin(rows[..., 0], (0, BEGIN_WORD + 1)).all():
            raise DataError(f"a word whose ids do not begin with {BEGIN_WORD + 1}; {self._maker()}")
        is_after_padding = np.greater(is_token[:, 1:], is_token[:, :-1]).any(axis=1)
        if is_after_padding.any():
            row = is_after_padding.argmax()
            raise DataError(f"row {row}: has words after padding, which is 0 and stands after the sentence")
        self._check_marks(rows, is_token.sum(axis=1))

    def _check_marks(self, rows: np.ndarray, lengths: np.ndarray) -> None:
        """Whether the sentence marks are there, or not, as they should be; rows of padding have none."""
        rows, lengths = rows[lengths > 0], lengths[lengths > 0]
        if not len(rows):
            return
        first, last = rows[:, 0], rows[np.arange(len(rows)), lengths - 1]
        if self.width:
            are_marks = (first[:, 1] == BEGIN_SENTENCE + 1) & (last[:, 1] == END_SENTENCE + 1)
        else:  # which ids the marks have is known to the vocabulary only, but they are the same in all rows
            are_marks = (first == first[0]) & (last == last[0]) & (first != last)
        if self.has_marks and not are_marks.all():
            raise DataError(
                f"row {are_marks.argmin()}: {self._name} ids without the sentence marks; {self._maker()}"
            )
        if not self.has_marks and are_marks.all():
            raise DataError(f"{self._name} ids with sentence marks, which are added here; {self._maker()}")

    def _checked_when_run(self, ids: Tensor) -> Tensor:
        ops = keras.ops
        if self.width:
            ids = ops.reshape(ids, (*ops.shape(ids)[:-1], self.width))
        is_right = ops.logical_and(ops.min(ids) >= 0, ops.max(ids) <= self.largest)
        if "float" in keras.backend.standardize_dtype(ids.dtype):
            is_right = ops.logical_and(is_right, ops.all(ids == ops.floor(ids)))
        if self.width:  # Keras may have made int32 of a smaller type, in which they have wrapped
            first = ids[..., 0]
            is_first = ops.logical_or(first == 0, first == BEGIN_WORD + 1)
            is_right = ops.logical_and(is_right, ops.all(is_first))
        message = f"{self._name} ids must be whole numbers, {self._range()}; {self._maker()}"
        return backend.asserted(ops.cast(ids, "int32"), is_right, message)

    @property
    def _name(self) -> str:
        return "character" if self.width else "word"

    def _form(self) -> str:
        words = "words + 2" if self.has_marks else "words"
        shape = ", ".join(("rows", words) if self.width is None else ("rows", words, str(self.width)))
        return f"{self._name} ids must be integers ({shape})"

    def _range(self) -> str:
        return f"0 (padding) to {self.largest}"

    def _maker(self) -> str:
        if self.width is None:
            return "`TokenBatcher` makes them"
        maker = f"Batcher(None, {self.width})" if self.has_marks else f"batch_to_ids(sentences, {self.width})"
        return f"`{maker}` makes them"


def _holds(dtype: Any, number: int) -> bool:  # noqa: ANN401
    """Whether a type is one of numbers and has this one."""
    try:
        kind = np.dtype(keras.backend.standardize_dtype(dtype))
    except (TypeError, ValueError):
        return False
    if kind.kind not in "iufV":  # bfloat16 is of the last
        return False
    with np.errstate(all="ignore"):
        return float(np.array(number).astype(kind)) == number
