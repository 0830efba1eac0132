"""The results of train, restart, test and dump_weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilm.runs.dry_run import Estimate
from bilm.runs.loop import Outcome


@dataclass(frozen=True)
class TrainingResult:
    """How a call of training ended.

    Attributes:
        save_dir: the run directory.
        outcome: ``"finished"``, ``"no gain"`` (`patience` ran out), ``"stopped"`` (what was learned is saved,
            and the same call with ``resume=True`` continues) or ``"dry run"``.
        step: steps behind the model.
        saved: prefix of the checkpoint that was saved last; None where nothing was left to do, and of a dry
            run.
        best_perplexity: lowest perplexity of the heldout text; None without one.
        best_step: the step that had it.
        best_checkpoint: prefix of that step's checkpoint.
        n_without_gain: validations since then.
        stop_reason: why it was stopped.
        estimate: what a dry run found; None where nothing is left to do.
    """

    save_dir: Path
    outcome: Outcome
    step: int
    saved: Path | None = None
    best_perplexity: float | None = None
    best_step: int | None = None
    best_checkpoint: Path | None = None
    n_without_gain: int = 0
    stop_reason: str | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True)
class TestResult:
    """How well a model predicts a text.

    Attributes:
        perplexity: of both directions together.
        forward_perplexity: of the forward direction.
        backward_perplexity: of the backward one; None of a model without it.
        tokens: targets that were scored in each direction.
        oov_rate: share of the words that are not in the vocabulary.
        checkpoint: prefix of the checkpoint that was read, or the file of weights.
        step: steps behind it; None of dumped weights, which do not say.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    tokens: int
    oov_rate: float
    checkpoint: str
    step: int | None


@dataclass(frozen=True)
class DumpResult:
    """What was written for embedding.

    Attributes:
        weight_file: the weights, HDF5.
        options_file: the options that go with them.
        checkpoint: prefix of the checkpoint that was read, or the file of weights.
        n_arrays: arrays in the file.
        n_values: numbers in them.
        vocabulary_file: the vocabulary, where a directory was written.
    """

    weight_file: Path
    options_file: Path
    checkpoint: str
    n_arrays: int
    n_values: int
    vocabulary_file: Path | None = None
