"""Results whose values have names, as attributes and as keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


class Named(Mapping[str, Any]):
    """Base of frozen dataclasses that are mappings of their fields too, those with a leading _ left out."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._names():
            raise KeyError(f"{name}; there are {', '.join(self._names())}")
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> tuple[str, ...]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return tuple(field.name for field in fields if not field.name.startswith("_"))
