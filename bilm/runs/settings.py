"""Settings of a training run: the arguments that train and restart have in common."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from bilm.errors import ArgumentError, OptionsError, require_positive
from bilm.io import PathLike
from bilm.io.messages import quoted


@dataclass(frozen=True)
class Interval:
    """How often something happens: every so many steps, or minutes."""

    steps: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, given: int | str | Interval) -> Interval:
        """``1250`` steps, or ``"30m"``: minutes.

        Raises:
            OptionsError: it is neither.
        """
        if isinstance(given, Interval):
            return given
        match = re.fullmatch(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<minutes>m?)", str(given))
        number = float(match["number"]) if match else 0.0
        if match and match["minutes"] and number > 0:
            return cls(minutes=number)
        if match and number >= 1 and number == int(number):
            return cls(steps=int(number))
        raise OptionsError(
            f"{quoted(str(given))} is neither a number of steps, such as 1250, nor of minutes, such as 30m"
        )

    def is_due(self, n_done: int, seconds: float) -> bool:
        """Whether it is time, `n_done` steps into the call and so long after the last time."""
        if self.steps is not None:
            return n_done % self.steps == 0
        return self.minutes is not None and seconds >= 60 * self.minutes


class SettingsArguments(TypedDict, total=False):
    """The keyword arguments that `TrainingSettings.of` takes; the hyper-parameters stand first."""

    n_epochs: int | None
    batch_size: int | None
    accumulate: int | None
    n_train_tokens: int | None
    optimizer: str | None
    learning_rate: float | None
    warmup_steps: int | None
    learning_rate_decay: str | None
    dropout: float | None
    type_dropout: float | None
    weight_dropout: float | None
    weight_decay: float | None
    weight_averaging: float | None
    precision: str | None
    changes: Mapping[str, Any] | None
    heldout_prefix: PathLike | Sequence[PathLike]
    eval_every: int | str | None
    patience: int | None
    save_every: int | str | Interval
    keep: int
    log_every: int
    histograms_every: int | None
    max_steps: int | None
    max_time: float | None
    seed: int | None
    shuffle: bool
    shuffle_buffer: int
    n_gpus: int
    jit: bool
    resume: bool
    dry_run: bool


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How a call goes through the text.

    Attributes:
        values: changes of the hyper-parameters, for `bilm.Options.with_values`.
        heldout_prefix: patterns of the heldout text; none for no validation.
        eval_every: steps between validations, or ``"epoch"``.
        patience: validations without gain before an early end, or None.
        save_every: steps or minutes between checkpoints.
        keep: checkpoints that stay beside the best.
        log_every: steps in a line of ``metrics.jsonl``.
        histograms_every: steps between histograms, or None.
        max_steps: bound on the steps of this call, or None.
        max_time: seconds this call may take, or None.
        seed: of everything random; None to draw one.
        shuffle: whether shards and sentences come in random order.
        shuffle_buffer: sentences shuffled together.
        n_gpus: replicas of the model.
        jit: compile with XLA.
        resume: continue an interrupted call.
        dry_run: only time a few steps.

    Raises:
        OptionsError: a number is out of its range.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    heldout_prefix: tuple[PathLike, ...] = ()
    eval_every: int | str = "epoch"
    patience: int | None = None
    save_every: Interval = Interval(steps=1250)
    keep: int = 2
    log_every: int = 20
    histograms_every: int | None = None
    max_steps: int | None = None
    max_time: float | None = None
    seed: int | None = None
    shuffle: bool = True
    shuffle_buffer: int = 100_000
    n_gpus: int = 1
    jit: bool = False
    resume: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        names = ("patience", "keep", "log_every", "histograms_every", "max_steps", "shuffle_buffer", "n_gpus")
        given = {name: getattr(self, name) for name in names}
        require_positive(**{name: number for name, number in given.items() if number is not None})
        if self.eval_every != "epoch" and (isinstance(self.eval_every, str) or self.eval_every < 1):
            raise OptionsError(f"`eval_every` is {self.eval_every!r}, neither a number of steps nor 'epoch'")
        if self.seed is not None and not 0 <= self.seed < 1 << 31:
            raise OptionsError(f"`seed` is {self.seed}; it must be at least 0 and below {1 << 31}")

    @classmethod
    def of(cls, arguments: SettingsArguments) -> TrainingSettings:
        """From keyword arguments: those above, hyper-parameters by name, and more of them in ``changes``.

        Raises:
            ArgumentError: one is unknown, or needs another.
            OptionsError: as of the class.
        """
        given: dict[str, Any] = dict(arguments)
        for name in given:
            _require_known(name)
        heldout = given.get("heldout_prefix", ())
        given["heldout_prefix"] = as_patterns(heldout)
        for name in ("eval_every", "patience"):
            if given.get(name) is not None and not given["heldout_prefix"]:
                raise ArgumentError(f"`{name}` needs `heldout_prefix`")
        named = {name: given.pop(name, None) for name in HYPER_PARAMETERS}
        values = dict(given.pop("changes", None) or {})
        values |= {name: value for name, value in named.items() if value is not None}
        given["eval_every"] = given.get("eval_every") or "epoch"
        given["save_every"] = Interval.of(given.get("save_every", cls.save_every))
        return cls(values=values, **given)


_FIELDS = tuple(field.name for field in dataclasses.fields(TrainingSettings) if field.name != "values")
HYPER_PARAMETERS = tuple(
    name for name in SettingsArguments.__annotations__ if name not in (*_FIELDS, "changes")
)
"""Those that are arguments of their own; ``changes`` takes every key of ``options.json``."""


def as_patterns(given: PathLike | Sequence[PathLike]) -> tuple[PathLike, ...]:
    """One pattern or several as several."""
    return (given,) if isinstance(given, str | os.PathLike) else tuple(given)


def _require_known(name: str) -> None:
    known = tuple(SettingsArguments.__annotations__)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else 'other keys of options.json go in changes={"key": value}'
        )
        raise ArgumentError(f"`{name}`: no such argument; {hint}")
