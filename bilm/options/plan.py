"""The plan of a training call: all that determines its numbers, and where it ends."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bilm.errors import DataError, OptionsError
from bilm.io import json_objects
from bilm.options.hyper_parameters import Options
from bilm.options.parameters import Decay

_ENDS_AT = (Decay.LINEAR, Decay.COSINE)  # the learning rate depends on the number of steps
_SHOWN_AS = {"workers": "workers", "xla": "XLA", "n_steps": "another number of steps"}  # not arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All that determines the numbers of a training call, and where it ends.

    A checkpoint stores it; a call is resumed with the same plan only.

    Attributes:
        command: ``train`` or ``restart``.
        options: complete options of the model.
        train_prefix: record of the text, see `bilm.data.corpus.corpus_record`.
        heldout_prefix: record of the heldout text, or None.
        eval_every: steps between validations, or ``"epoch"``; None without a heldout text.
        seed, shuffle, shuffle_buffer, jit, log_every: as in the settings of the call.
        n_gpus: replicas of each process.
        threads: threads of one operation, which affect the last bits of the results; None if not recorded. A
            resumed call takes them from here, and may be given others.
        workers: number of processes.
        xla: true if XLA compiles the LSTM, which affects the last bits of the results.
        freeze: part of the model that is not trained, or None.
        n_steps: number of steps; 0 in a stored plan of an earlier version that left it out.
        steps_per_epoch: number of steps in one epoch; 0 in a stored plan.
    """

    command: str
    options: Options
    train_prefix: Mapping[str, Any]
    heldout_prefix: Mapping[str, Any] | None = None
    eval_every: int | str | None = None
    seed: json_objects.Count
    shuffle: bool
    shuffle_buffer: json_objects.Count
    n_gpus: json_objects.Count
    jit: bool
    log_every: json_objects.Count
    workers: json_objects.Count
    xla: bool
    freeze: str | None = None
    threads: json_objects.Positive | None = None
    n_steps: int = 0
    steps_per_epoch: int = 0

    @property
    def n_steps_to_validation(self) -> int:
        """Number of steps from one validation to the next."""
        return self.steps_per_epoch if self.eval_every == "epoch" else int(self.eval_every or 0)

    @classmethod
    def read(cls, stored: json_objects.JsonObject) -> "Plan":
        """Read a stored plan; problems are collected in the object, options of other versions left out."""
        values = stored.take("options", dict) or {}
        options = None
        try:
            options, _ = Options.parse(values)
        except OptionsError as error:
            stored.problems.append(f"{stored.path('options')}: {error}")
        n_steps = stored.take("n_steps", json_objects.Count, values.get("n_steps", 0))
        return stored.read_as(cls, options=options, n_steps=n_steps, steps_per_epoch=0)

    def to_json(self) -> dict[str, Any]:
        """Return the object to store; the options have the number of steps if the learning rate needs it."""
        options = self.options.to_json()
        del options["n_epochs"]
        if self.options.learning_rate_decay in _ENDS_AT:
            options["n_steps"] = self.n_steps
        values = {**vars(self), "options": options}
        del values["steps_per_epoch"]
        return values

    def require_same(self, begun: "Plan", source: object) -> None:
        """Check that a call that has begun with one plan is resumed with the same.

        Args:
            begun: stored plan of the call.
            source: run directory, for the message.

        Raises:
            OptionsError: the plans differ; the message lists all differences.
        """
        if changed := json_objects.changes(begun._comparable(), self._comparable()):
            remedy = "give the original values, or continue with `bilm restart`"
            raise OptionsError(f"{source}: cannot be resumed with {', '.join(changed)}; {remedy}")

    def _comparable(self) -> dict[str, Any]:
        """Return what must be the same, by its name in messages.

        The contents of the texts are compared when they are read, so here only their presence counts.
        """
        values = self.to_json()
        options = values.pop("options")
        del values["log_every"], values["threads"], values["n_steps"]
        values |= {"train_prefix": "given", "heldout_prefix": self.heldout_prefix and "given"}
        shown = {_SHOWN_AS.get(name, f"`{name}`"): value for name, value in values.items()}
        return shown | {_SHOWN_AS.get(name, name): value for name, value in options.items()}


def count_steps(
    options: Options, n_tokens: int, n_replicas: int, max_steps: int | None = None
) -> tuple[int, int, float]:
    """Count the steps of a call, the steps of an epoch, and the passes over the text in all.

    Args:
        options: options of the model.
        n_tokens: tokens of the text.
        n_replicas: copies of the model that train together.
        max_steps: limit of the steps, or None.

    Raises:
        DataError: the text is smaller than one batch.
    """
    batch = options.step_tokens * n_replicas
    n_of_epoch = options.n_train_tokens or n_tokens
    if (fewest := min(n_of_epoch, n_tokens)) < batch:
        window = f"{options.batch_size} rows x {options.unroll_steps} steps"
        size = f"{window} x {n_replicas} replicas x {options.accumulate} accumulated ({batch:,})"
        problem = f"an epoch of {fewest:,} tokens is less than one batch of {size}"
        raise DataError(f"{problem}; give more text or a smaller `batch_size`")
    steps_per_epoch = n_of_epoch // batch
    n_steps = options.n_epochs * steps_per_epoch
    n_steps = min(n_steps, max_steps or n_steps)
    return n_steps, steps_per_epoch, n_steps * batch / n_tokens
