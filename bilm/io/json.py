"""JSON: decoding it, reading it key by key with all problems collected, comparing it; a record a line."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import json
import operator
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.messages import excerpt, os_errors_as, shown

Record = TypeVar("Record")

_REQUIRED = dataclasses.MISSING
_KINDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_DEEPEST = 50  # nesting levels; our own files have five
_LONGEST_KEY = 80  # characters; the options have shorter ones
_MOST_UNKNOWN = 20  # keys of an object that a message names
_LONGEST_INTEGER = 19  # digits, as in 64 bits


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """Decode JSON, refusing values that are nested too deep and keys that come twice in an object.

    Integers of more than 64 bits become floats, as in JavaScript.

    Raises:
        ValueError: it is not JSON, or nested too deep, or a key comes twice.
    """
    too_deep = f"objects or lists nested more than {_DEEPEST} deep"
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(_DEEPEST):
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for values in inside for inner in values if isinstance(inner, (dict, list))]
        if not level:
            return value
    raise ValueError(too_deep)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {excerpt(twice)} comes twice in an object")
    return values


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a number must be; in the annotation of a field, ``Annotated[int, Bounds(least=1)]``."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None

    def problem(self, value: float) -> str:
        """What is wrong with a number, or nothing."""
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
Count = Annotated[int, Bounds(least=0)]


class JsonObject:
    """One JSON object being read: takes each key once, and notes what is wrong with it.

    Args:
        name: dotted name of the object within its file, "" for the whole.
        values: the decoded JSON; anything but an object is a problem.
        outer: the object that it is in, if there is one.

    Attributes:
        values: the object, empty where there is none.
        problems: including those of nested objects.
        taken: keys that were read.
    """

    def __init__(self, name: str, values: object, outer: JsonObject | None = None) -> None:
        self.name = name
        self.problems: list[str] = outer.problems if outer else []
        self.taken: set[str] = set()
        self._objects: list[JsonObject] = outer._objects if outer else []  # of the file
        self._objects.append(self)
        if not isinstance(values, Mapping):
            self.problems.append(f"{name or 'the file'}: expected an object, got {shown(values)}")
            values = {}
        self.values = values

    def path(self, key: str) -> str:
        """The dotted name of a key, as problems and ``--set`` give it."""
        return f"{self.name}.{key}" if self.name else key

    def section(self, key: str) -> JsonObject:
        """The object at a key, whose problems are noted here; an empty one where there is none."""
        self.taken.add(key)
        return JsonObject(self.path(key), self.values.get(key, {}), self)

    def take(self, key: str, annotation: Any, default: Any = _REQUIRED, is_complete: bool = False) -> Any:  # noqa: ANN401
        """The value of `key`, converted; a problem is noted and the default or None returned if it is wrong.

        Args:
            key: read once.
            annotation: of its type, see `read_as`.
            default: where the key is missing, or the value is null or wrong.
            is_complete: see `read_as`.
        """
        self.taken.add(key)
        if key not in self.values:
            if default is _REQUIRED or (is_complete and default is not None):
                self.problems.append(f"{self.path(key)}: missing")
            return None if default is _REQUIRED else default
        value = self._convert(self.path(key), self.values[key], annotation, is_complete)
        return default if value is None and default is not _REQUIRED else value

    def read_as(self, record: type[Record], *, is_complete: bool = False, **given: Any) -> Record:  # noqa: ANN401
        """A dataclass of the values at the names of its fields.

        The annotations say what a value must be: a number, perhaps with `Bounds`, a truth value, a string,
        an `enum.Enum` by its values, a mapping, another dataclass, a sequence of any of these, one of two of
        these, or None.
        A dataclass with a method `contradictions` is asked for problems between its values.

        Args:
            record: the dataclass; what could not be read has its default, or None.
            is_complete: whether keys with a default must be there too, unless that is None.
            **given: fields that are not read.
        """
        hints = _annotations(cast(Hashable, record))
        values = dict(given)
        n_before = len(self.problems)
        for field in dataclasses.fields(record):  # type: ignore[arg-type]
            self.taken.add(field.name)
            if field.name not in given:
                default = field.default
                if field.default_factory is not dataclasses.MISSING:
                    default = field.default_factory()
                values[field.name] = self.take(field.name, hints[field.name], default, is_complete)
        found = record(**values)
        if len(self.problems) == n_before and hasattr(found, "contradictions"):
            self.problems += map(self.path, found.contradictions())
        return found

    @property
    def unknown(self) -> list[str]:
        """Keys that were not read, including those of nested objects."""
        return [one.path(excerpt(key)) for one in self._objects for key in one._untaken()]

    def refuse_unknown(self) -> None:
        """Note the keys that were not read as problems."""
        for one in self._objects:
            for key in one._untaken()[:_MOST_UNKNOWN]:
                close = difflib.get_close_matches(key[:_LONGEST_KEY], one.taken, n=1)
                hint = f", did you mean {one.path(close[0])}?" if close else ""
                self.problems.append(f"{one.path(excerpt(key))}: unrecognised option{hint}")

    def _untaken(self) -> list[str]:
        return [key for key in self.values if key not in self.taken]

    def _convert(self, name: str, value: object, annotation: Any, is_complete: bool) -> Any:  # noqa: ANN401
        """A value converted to the type of an annotation; None if that is not possible."""
        form, inner, bounds = get_origin(annotation), get_args(annotation), _ANY
        if form in (Union, UnionType):
            kinds = [kind for kind in inner if kind is not NoneType]
            annotation = next((kind for kind in kinds if kind in _KINDS and is_kind(value, kind)), kinds[0])
            return None if value is None else self._convert(name, value, annotation, is_complete)
        if form is Annotated:
            annotation, bounds = inner
        elif form in (list, Sequence):
            items = self._checked(name, value, list) or []
            return [self._convert(f"{name}[{k}]", one, inner[0], is_complete) for k, one in enumerate(items)]
        elif form in (dict, Mapping):
            annotation = dict
        elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return JsonObject(name, value, self).read_as(annotation, is_complete=is_complete)
        elif issubclass(annotation, enum.Enum):
            known = [member.value for member in annotation]
            if value in known:
                return annotation(value)
            self.problems.append(f"{name}: expected one of {', '.join(known)}, got {shown(value)}")
            return None
        return self._checked(name, value, annotation, bounds)

    def _checked(self, name: str, value: Any, kind: type, bounds: Bounds = _ANY) -> Any:  # noqa: ANN401
        problem = f"expected {_KINDS[kind]}, got {shown(value)}"
        if is_kind(value, kind):
            problem = bounds.problem(value)
        if problem:
            self.problems.append(f"{name}: {problem}")
            return None
        return float(value) if kind is float else value


_annotations = functools.cache(functools.partial(get_type_hints, include_extras=True))


def is_kind(value: object, kind: type) -> bool:
    """Whether a value is of a type, as JSON has it: a truth value is no integer, a float is finite."""
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def changes(before: Mapping[str, Any], after: Mapping[str, Any], section: str = "") -> list[str]:
    """Every difference, as ``lstm.dim (512 to 1024)``.

    Args:
        before: one object.
        after: the other.
        section: put before the keys.
    """
    found = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes(old, new, f"{section}{key}.")
        elif old != new:
            found.append(f"{section}{excerpt(key)} ({shown(old)} to {shown(new)})")
    return found


def read_json_lines(path: PathLike, read: Callable[[JsonObject], Record]) -> list[Record]:
    """Read a file of records, oldest first.

    A truncated last line, which a killed process may leave, is ignored.

    Args:
        path: UTF-8, one JSON object per line.
        read: makes a record of an object; the problems that it notes there are raised here.

    Raises:
        DataError: the file cannot be read, or a line is damaged; names file and line.
    """
    path = Path(path)
    with os_errors_as(DataError, f"{path}: cannot be read"), path.open("rb") as file:
        lines = file.readlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
        except ValueError:
            if not line.endswith(b"\n"):
                break  # only the last one has no end
            text = shown(line.decode("utf-8", "replace").rstrip("\n"))
            raise DataError(f"{path}: line {number}: damaged; expected a JSON object, got {text}") from None
        if not isinstance(values, dict):
            raise DataError(f"{path}: line {number}: expected a JSON object, got {shown(values)}")
        top = JsonObject("", values)
        records.append(read(top))
        if top.problems:
            raise DataError(f"{path}: line {number}: {'; '.join(top.problems)}")
    return records


def whole_lines(path: Path) -> int:
    """Length of a file without a truncated last line, left by a killed process; 0 if there is no file.

    Raises:
        OSError: from the file system.
    """
    try:
        return path.read_bytes().rfind(b"\n") + 1
    except FileNotFoundError:
        return 0
