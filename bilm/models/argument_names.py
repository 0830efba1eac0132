"""AllenNLP's names of arguments: accepted, or refused with what to do instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bilm.errors import OptionsError

_Result = TypeVar("_Result")


def also_takes(renamed: Mapping[str, str]) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Let a function take keyword arguments by further names.

    Args:
        renamed: further name -> the name of the argument.
    """

    def decorate(function: Callable[..., _Result]) -> Callable[..., _Result]:
        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> _Result:  # noqa: ANN401
            for theirs in renamed.keys() & given.keys():
                ours = renamed[theirs]
                if ours in given:
                    raise OptionsError(f"{theirs} and {ours} are the same argument; give one of them")
                given[ours] = given.pop(theirs)
            return function(*args, **given)

        return call

    return decorate


def refuse(given: dict[str, Any], advice: Mapping[str, str]) -> None:
    """Take out arguments that mean nothing here.

    Args:
        given: keyword arguments.
        advice: name -> what to do instead; None, which is AllenNLP's default, does no harm.

    Raises:
        OptionsError: one of them is given.
    """
    for name in advice.keys() & given.keys():
        if given.pop(name) is not None:
            raise OptionsError(f"{name}: {advice[name]}")
