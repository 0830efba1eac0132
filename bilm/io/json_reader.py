"""Decoding JSON, and reading an object key by key with every problem noted and none raised on the way."""

from __future__ import annotations

import difflib
import enum
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from bilm.io.shown import excerpt, shown

_REQUIRED = object()
_DEEPEST = 50  # levels within each other; our own files have five
_LONGEST_KEY = 80  # characters; the options' own have fewer
_LONGEST_INTEGER = 19  # digits, as those of 64 bits have


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """Decode JSON, of which nothing is too deep or too large for what is done with it afterwards.

    Integers of more than 64 bits become floats, as in the languages that have no others.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    too_deep = f"objects or lists within each other, more than {_DEEPEST} deep"
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError(too_deep)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _inside(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class JsonObject:
    """One JSON object being read: takes each key once, and notes what is wrong with it.

    Args:
        name: dotted name of the object within its file, "" for the whole.
        values: the decoded JSON; anything but an object is a problem.
        problems: takes a line for each.
    """

    def __init__(self, name: str, values: object, problems: list[str]) -> None:
        self.name = name
        self.problems = problems
        self.taken: set[str] = set()
        if not isinstance(values, Mapping):
            problems.append(f"{name or 'the file'}: expected an object, got {shown(values)}")
            values = {}
        self.values = values

    def take(
        self,
        key: str,
        kind: str,
        default: Any = _REQUIRED,  # noqa: ANN401
        least: float | None = None,
        above: float | None = None,
        below: float | None = None,
        most: float | None = None,
    ) -> Any:  # noqa: ANN401
        """The value of `key`, checked; a problem is noted and the default returned if it is wrong."""
        self.taken.add(key)
        value = self.values.get(key, default)
        if value is _REQUIRED:
            self.problems.append(f"{self.path(key)}: missing")
            return None
        if key not in self.values or (value is None and default is None):
            return value
        if not is_kind(value, kind):
            self.problems.append(f"{self.path(key)}: expected {kind}, got {shown(value)}")
        elif least is not None and value < least:
            self.problems.append(f"{self.path(key)}: must be at least {least}, got {shown(value)}")
        elif above is not None and value <= above:
            self.problems.append(f"{self.path(key)}: must be above {above}, got {shown(value)}")
        elif below is not None and value >= below:
            self.problems.append(f"{self.path(key)}: must be below {below}, got {shown(value)}")
        elif most is not None and value > most:
            self.problems.append(f"{self.path(key)}: must be at most {most}, got {shown(value)}")
        else:
            return float(value) if kind == "a number" else value
        return None if default is _REQUIRED else default

    def path(self, key: str) -> str:
        """The dotted name of a key, as problems and ``--set`` give it."""
        return f"{self.name}.{key}" if self.name else key

    def choice(self, key: str, choices: type[enum.Enum], default: enum.Enum) -> Any:  # noqa: ANN401
        """The member of an enumeration whose value stands at `key`; a wrong one is told the right ones."""
        value = self.take(key, "a string", default.value)
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(member.value for member in choices)
            self.problems.append(f"{self.path(key)}: expected one of {known}, got {shown(value)}")
            return default

    def finish(self, unknown: list[str] | None) -> None:
        """Note the keys nobody took."""
        for key in self.values.keys() - self.taken:
            name = self.path(excerpt(key))
            if unknown is not None:
                unknown.append(name)
                continue
            close = difflib.get_close_matches(key[:_LONGEST_KEY], self.taken, n=1)
            hint = f", did you mean {self.path(close[0])}?" if close else ""
            self.problems.append(f"{name}: unrecognised option{hint}")


def is_kind(value: object, kind: str) -> bool:
    """Whether a value is of a kind.

    The kinds: an integer, a number (finite), true or false, a string, a list, an object.
    """
    if kind == "an integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "a number":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
    return isinstance(
        value, {"true or false": bool, "a string": str, "a list": list, "an object": dict}[kind]
    )
