"""The description of a run directory or a weight file; `bilm.analysis.info` makes it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from bilm.options import Options
from bilm.run_directory.records import CallRecord, Metrics
from bilm.weights.infer_options import known_from_shapes


@dataclasses.dataclass(frozen=True)
class ArrayInfo:
    """One array: its name in the file, its shape, and the part of the network that it belongs to."""

    name: str
    shape: tuple[int, ...]
    part: str

    @property
    def n_values(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint: its prefix, the steps behind it (None if its name does not say), its size on disk."""

    prefix: str
    step: int | None
    n_bytes: int
    is_newest: bool
    is_best: bool


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What run directories and weight files have in common.

    Attributes:
        path: of the directory or file.
        options: all of them, or those that could be inferred.
        arrays: of the model, without the state of an optimizer.
    """

    path: Path
    options: Options
    arrays: tuple[ArrayInfo, ...]

    @property
    def n_parameters(self) -> int:
        """Numbers in all arrays."""
        return sum(array.n_values for array in self.arrays)

    @property
    def parts(self) -> dict[str, int]:
        """The number of parameters by part of the network."""
        counts: dict[str, int] = {}
        for array in self.arrays:
            counts[array.part] = counts.get(array.part, 0) + array.n_values
        return counts

    def to_json(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "path": str(self.path),
            "parameters": self.n_parameters,
            "parts": self.parts,
            "vocabulary": self.options.n_tokens_vocab,
            "arrays": [{"name": array.name, "shape": list(array.shape)} for array in self.arrays],
        }


@dataclasses.dataclass(frozen=True)
class RunInfo(ModelInfo):
    """A run directory.

    Attributes:
        step: steps behind the newest checkpoint; None if there is none.
        checkpoints: by ascending step.
        has_vocabulary: whether ``vocab.txt`` is in the directory.
        metrics: the course of training; None where it was not recorded.
        last_call: the last ``bilm train`` or ``restart``; None where it was not recorded.
        files: bytes of every file by name.
    """

    step: int | None
    checkpoints: tuple[CheckpointInfo, ...]
    has_vocabulary: bool
    metrics: Metrics | None
    last_call: CallRecord | None
    files: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Everything as one JSON object; the course of training as its last records."""
        last = self.metrics and self.metrics.last
        heldout = self.metrics and self.metrics.heldout
        best = self.metrics and self.metrics.best
        return {
            "kind": "run",
            **super().to_json(),
            "options": self.options.to_json(),
            "step": self.step,
            "checkpoints": [dataclasses.asdict(checkpoint) for checkpoint in self.checkpoints],
            "trained": {"step": last.step, "epoch": last.epoch, "tokens": last.tokens} if last else None,
            "last_heldout": heldout[-1].to_json() if heldout else None,
            "best_heldout": best.to_json() if best else None,
            "last_call": self.last_call and dataclasses.asdict(self.last_call),
            "files": self.files,
        }


@dataclasses.dataclass(frozen=True)
class WeightsInfo(ModelInfo):
    """A file of dumped weights.

    Attributes:
        n_bytes: its size.
        options_file: the options found beside it, or None.
        disagreement: what is wrong with them, or None.
        n_words: words of the vocabulary that comes with them; None if none does.
    """

    n_bytes: int
    options_file: Path | None
    disagreement: str | None
    n_words: int | None = None

    @property
    def is_inferred(self) -> bool:
        """Whether the options are what the shapes tell, not those of a file."""
        return self.options_file is None or self.disagreement is not None

    def to_json(self) -> dict[str, Any]:
        """Everything as one JSON object; of inferred options only what is known."""
        options = known_from_shapes(self.options)
        if not self.is_inferred:
            options |= self.options.to_inference_json()
        return {
            "kind": "weights",
            **super().to_json(),
            "options": options,
            "inferred": self.is_inferred,
            "options_file": self.options_file and str(self.options_file),
            "disagreement": self.disagreement,
            "bytes": self.n_bytes,
            "words": self.n_words,
        }
