"""Parameters as the fields of dataclasses, each described once, where it is defined.

The annotation of a field has its type, perhaps with `Bounds`, or its choices; its metadata the rest. The
flags of the commands, the checks of Python arguments and the tables of ``docs/options.md`` are made of these.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bilm.io.json import Bounds

Value = TypeVar("Value")


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


def described(
    meaning: str, *, flag: bool = False, key: str | None = None, shown: str | None = None
) -> Mapping[str, Any]:
    """The metadata of a field; see `Parameter`."""
    return {"meaning": meaning, "flag": flag, "key": key, "shown": shown}


def parameter(default: Value, meaning: str, **more: Any) -> Value:  # noqa: ANN401
    """A field with a default; for the rest see `described`."""
    return cast(Value, dataclasses.field(default=default, metadata=described(meaning, **more)))


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
