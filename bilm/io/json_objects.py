"""JSON: decoding, reading objects into dataclasses with all problems collected, comparing, JSON Lines."""

import dataclasses
import difflib
import enum
import functools
import io
import json
import logging
import operator
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from sys import float_info
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bilm.errors import KIND_WORDS, BilmError, DataError, fits
from bilm.io import PathLike
from bilm.io.messages import shown
from bilm.io.outputs import read_file

Record = TypeVar("Record")

_LOG = logging.getLogger(__name__)
_REQUIRED = dataclasses.MISSING
_KINDS = KIND_WORDS | {bool: "true or false", list: "a list", dict: "an object"}
_LEAST_ALIKE = 0.75  # of a key and the one that is suggested, as `difflib` measures it
_LONGEST_KEY = 80  # characters; all keys of the options are shorter
_MOST_UNKNOWN = 20  # unknown keys of an object that a message names


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """Decode JSON; a repeated key in an object is an error.

    Raises:
        ValueError: the text is not JSON, is nested too deep for Python, or repeats a key.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("objects or lists nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r:.80} is repeated in an object")
    return values


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds of a number, in the annotation of a field: ``Annotated[int, Bounds(least=1)]``."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None

    def problem(self, value: float) -> str:
        """Return the problem of a number; empty if it is within the bounds."""
        for words, bound, holds in (
            ("at least", self.least, operator.ge),
            ("above", self.above, operator.gt),
            ("below", self.below, operator.lt),
            ("at most", self.most, operator.le),
        ):
            if bound is not None and not holds(value, bound):
                return f"must be {words} {bound}, got {shown(value)}"
        return ""


_ANY = Bounds()
_INT64 = Bounds(least=-(1 << 63), most=(1 << 63) - 1)
Count = Annotated[int, Bounds(least=0)]
Positive = Annotated[int, Bounds(least=1)]


class JsonObject:
    """Reads a JSON object key by key and collects all problems.

    Args:
        name: dotted name of the object within its file; empty for the whole file.
        values: decoded JSON; a value other than an object is a problem.
        outer: the enclosing object, if any.

    Attributes:
        values: the object; empty if `values` is not an object.
        problems: problems so far, also of nested objects.
        taken: keys that were read.
    """

    def __init__(self, name: str, values: object, outer: "JsonObject | None" = None) -> None:
        self.name = name
        self.problems: list[str] = outer.problems if outer else []
        self.taken: set[str] = set()
        self._objects: list[JsonObject] = outer._objects if outer else []  # all objects of the file
        self._objects.append(self)
        if not isinstance(values, Mapping):
            self.problems.append(f"{name or 'the file'}: expected an object, got {shown(values)}")
            values = {}
        self.values: dict[str, Any] = dict(values) if outer else plain(values)

    def path(self, key: str) -> str:
        """Return the dotted name of a key, as in problems and ``--set``."""
        return f"{self.name}.{key}" if self.name else key

    def section(self, key: str) -> "JsonObject":
        """Return the nested object at a key, empty if the key is missing; its problems are collected here."""
        self.taken.add(key)
        return JsonObject(self.path(key), self.values.get(key, {}), self)

    def take(self, key: str, annotation: Any, default: Any = _REQUIRED) -> Any:  # noqa: ANN401
        """Return the converted value of a key; add a problem and return the default or None if it is wrong.

        Args:
            key: the key.
            annotation: type of the value, see `read_as`.
            default: result if the key is missing, or its value is null or wrong.
        """
        self.taken.add(key)
        value = None
        if key in self.values:
            value = self._convert(self.path(key), self.values[key], annotation)
        elif default is _REQUIRED:
            self.problems.append(f"{self.path(key)}: missing")
        return default if value is None and default is not _REQUIRED else value

    def read_as(self, record: type[Record], **fields: Any) -> Record:  # noqa: ANN401
        """Read the fields of a dataclass from the keys of the same names.

        Annotations may be numbers, with or without `Bounds`, booleans, strings, an `enum.Enum` of strings,
        mappings, other dataclasses, sequences and tuples of these, and unions with each other or None.

        Args:
            record: the dataclass. It may refuse its values with an error that lists `BilmError.problems`.
            **fields: values of fields that are not to be read.

        Returns:
            The record, or None if there are problems in the file so far.
        """
        hints = annotations(record)
        values = dict(fields)
        for field in dataclasses.fields(record):  # type: ignore[arg-type]
            self.taken.add(field.name)
            if field.name not in fields:
                factory = field.default_factory
                default = field.default if factory is _REQUIRED else factory()
                values[field.name] = self.take(field.name, hints[field.name], default)
        result: Any = None
        if not self.problems:
            try:
                result = record(**values)
            except BilmError as error:
                self.problems += map(self.path, error.problems)
        return result

    @property
    def unknown(self) -> list[str]:
        """Dotted names of the keys that were not read, also in nested objects."""
        return [inner.path(key) for inner in self._objects for key in inner._untaken()]

    def refuse_unknown(self) -> None:
        """Add a problem for each key that was not read."""
        for inner in self._objects:
            for key in inner._untaken()[:_MOST_UNKNOWN]:
                close = difflib.get_close_matches(str(key)[:_LONGEST_KEY], inner.taken, 1, _LEAST_ALIKE)
                hint = f", did you mean {inner.path(close[0])}?" if close else ""
                self.problems.append(f"{inner.path(key)!r:.80}: unrecognised option{hint}")

    def _untaken(self) -> list[str]:
        return [key for key in self.values if key not in self.taken]

    def _convert(self, name: str, value: object, annotation: Any) -> Any:  # noqa: ANN401
        """Convert a value to the type of an annotation; add a problem and return None if it does not fit."""
        form, inner, bounds = get_origin(annotation), get_args(annotation), _ANY
        if form in (Union, UnionType):
            kinds = [kind for kind in inner if kind is not NoneType]
            annotation = next((kind for kind in kinds if kind in _KINDS and is_kind(value, kind)), kinds[0])
            return None if value is None else self._convert(name, value, annotation)
        if form is Annotated:
            annotation, bounds = inner
        elif form in (list, Sequence, tuple):
            items = self._checked(name, value, list) or []
            of_items = inner if form is tuple and ... not in inner else inner[:1] * len(items)
            if len(items) != len(of_items):
                self.problems.append(f"{name}: expected a list of {len(of_items)}, got {shown(value)}")
            pairs = enumerate(zip(items, of_items, strict=False))
            converted = [self._convert(f"{name}[{k}]", item, kind) for k, (item, kind) in pairs]
            return tuple(converted) if form is tuple else converted
        elif form in (dict, Mapping):
            annotation = dict
        elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            is_read = isinstance(value, annotation)
            return value if is_read else JsonObject(name, value, self).read_as(annotation)
        elif issubclass(annotation, enum.Enum):
            known = [member.value for member in annotation]
            if value in known:
                return annotation(value)
            self.problems.append(f"{name}: expected one of {', '.join(known)}, got {shown(value)}")
            return None
        return self._checked(name, value, annotation, bounds)

    def _checked(self, name: str, value: Any, kind: type, bounds: Bounds = _ANY) -> Any:  # noqa: ANN401
        problem = f"expected {_KINDS[kind]}, got {shown(value)}"
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if is_kind(value, kind):
            problem = bounds.problem(value) or (_INT64.problem(value) if kind is int else "")
        if problem:
            self.problems.append(f"{name}: {problem}")
            return None
        return float(value) if kind is float else value


class Arguments(JsonObject):
    """Keyword arguments of a call, read like a JSON object; problems name an argument in backticks."""

    def path(self, key: str) -> str:
        """Return the name of an argument as in problems."""
        return f"`{key}`"


def plain(value: Any, depth: int = 9) -> Any:  # noqa: ANN401
    """Return a value with Python's numbers and lists in place of tuples and of NumPy's, to some depth."""
    if depth and isinstance(value, Mapping):
        return {key: plain(inner, depth - 1) for key, inner in value.items()}
    if depth and isinstance(value, list | tuple):
        return [plain(inner, depth - 1) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value


_annotations = functools.cache(functools.partial(get_type_hints, include_extras=True))


def annotations(record: type) -> dict[str, Any]:
    """Return the annotations of a dataclass, with `Bounds`, by field name."""
    return _annotations(cast(Hashable, record))


def is_kind(value: object, kind: type) -> bool:
    """Return whether a value has a JSON type: booleans are not integers, and floats are finite."""
    return fits(value, kind) and (kind is not float or abs(value) <= float_info.max)  # type: ignore[arg-type]


def changes(before: Mapping[str, Any], after: Mapping[str, Any], section: str = "") -> list[str]:
    """Return all differences between two objects, such as ``lstm.dim (512 to 1024)``.

    Args:
        before: the old object.
        after: the new object.
        section: prefix of the keys.
    """
    differences = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            differences += changes(old, new, f"{section}{key}.")
        elif old != new:
            differences.append(f"{section}{key} ({shown(old)} to {shown(new)})")
    return differences


def read_json_lines(path: PathLike, read: Callable[[JsonObject], Record]) -> tuple[list[Record], list[str]]:
    """Read the records of a JSON Lines file, in the order of the file.

    Damaged lines are left out with a warning that names file and line. A truncated last line, which a killed
    process may leave, is ignored.

    Args:
        path: the file: UTF-8, one JSON object per line; without a file there are no records.
        read: makes a record of an object; may add problems to the object.

    Returns:
        The records, and the names of the keys that were not read.

    Raises:
        DataError: the file cannot be read.
    """
    records, damaged, unknown = [], [], dict[str, None]()
    content = read_file(path, DataError) if os.path.exists(path) else b""
    for number, line in enumerate(io.BytesIO(content), start=1):
        try:
            top = JsonObject("", parse_json(line))
        except ValueError:
            if not line.endswith(b"\n"):
                break  # only the last line lacks a line end
            damaged.append(f"{number}: {shown(line.decode('utf-8', 'replace').rstrip())} is not JSON")
            continue
        record = read(top)
        if top.problems:
            damaged.append(f"{number}: {'; '.join(top.problems)}")
            continue
        records.append(record)
        unknown |= dict.fromkeys(top.unknown)
    if damaged:
        others = f", and {len(damaged) - 1:,} more" if damaged[1:] else ""
        _LOG.warning("%s: a damaged line is left out%s: line %s", path, others, damaged[0])
    return records, [*unknown]


def whole_lines(path: Path) -> int:
    """Return the bytes of a file's complete lines, without a truncated last one; 0 if there is no file.

    Raises:
        DataError: the file cannot be read.
    """
    return read_file(path, DataError).rfind(b"\n") + 1 if path.exists() else 0
