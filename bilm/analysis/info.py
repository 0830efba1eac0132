"""Describing a run directory or a weight file from names, shapes and records, without reading arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import OptionsError, WeightsError
from bilm.io import PathLike
from bilm.io.foreign import is_hdf5
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.files import CheckpointIndex
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, CallRecord, Metrics, read_calls, read_metrics
from bilm.weights.distribution import HDF5_ENDS, Distribution, find_distribution, options_beside
from bilm.weights.hdf5_file import Shapes, check_shapes, read_hdf5_shapes
from bilm.weights.names import differences, infer_options, known_from_shapes, weight_names


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


# Parts of the network by the beginnings of our own names; the first that fits.
_PARTS = (
    ("encoder/char_cnn/high_", "highways"),
    ("encoder/char_cnn/W_proj", "projection"),
    ("encoder/char_cnn/b_proj", "projection"),
    ("encoder/char_cnn/", "character CNN"),
    ("encoder/embedding", "word vectors"),
    ("encoder/forward_", "forward LSTM"),
    ("encoder/backward_", "backward LSTM"),
    ("softmax/", "softmax"),
)


def describe(path: PathLike) -> RunInfo | WeightsInfo:
    """Describe a model.

    Args:
        path: a run directory, ours or bilm-tf's; a folder or a ZIP archive as on vectors.nlpl.eu; or an HDF5
            file of weights, of which the options may be missing.

    Raises:
        BilmError: it is none of these, or damaged; says where.
    """
    path = Path(path)
    if path.is_dir():
        from bilm.run_directory.model_source import is_run

        if is_run(path):
            return _describe_run(path)
    elif path.is_file() and (is_hdf5(path) or path.name.endswith(HDF5_ENDS)):
        return _describe_file(path)
    return _describe_distribution(find_distribution(path))


def _describe_run(path: Path) -> RunInfo:
    from bilm.run_directory.directory import RunDirectory
    from bilm.run_directory.state import read_state

    run = RunDirectory.open(path)
    step = newest = best = None
    if run.index.exists():
        checkpoint = run.latest(read=False)
        newest, step, state = Path(checkpoint.prefix), checkpoint.step(), read_state(checkpoint)
        best = state and state.best
    metrics = read_metrics(path / METRICS_FILE) if (path / METRICS_FILE).exists() else None
    calls = read_calls(path / CALLS_FILE) if (path / CALLS_FILE).exists() else ()
    return RunInfo(
        path=path,
        options=run.options,
        arrays=_arrays((name.tf1, name.own, name.shape) for name in run.names),
        step=step,
        checkpoints=_checkpoints(run.index, newest, best.step if best else None),
        has_vocabulary=run.vocabulary_file.is_file(),
        metrics=metrics,
        last_call=calls[-1] if calls else None,
        files=_n_bytes(path),
    )


def _checkpoints(index: CheckpointIndex, newest: Path | None, best: int | None) -> tuple[CheckpointInfo, ...]:
    found: dict[Path, int | None] = {index.prefix(step): step for step in index.steps()}
    if newest is not None:
        found.setdefault(newest, None)  # bilm-tf lets it lie elsewhere
    return tuple(
        CheckpointInfo(
            prefix=str(prefix),
            step=step,
            n_bytes=sum(_n_bytes(prefix.parent, f"{prefix.name}.").values()),
            is_newest=prefix == newest,
            is_best=step is not None and step == best,
        )
        for prefix, step in found.items()
    )


def _n_bytes(directory: Path, start: str = "") -> dict[str, int]:
    """Sizes of the files whose names begin so."""
    sizes = {}
    for file in sorted(directory.iterdir()):
        if file.name.startswith(start) and file.is_file():
            with contextlib.suppress(FileNotFoundError):  # a running training removes old checkpoints
                sizes[file.name] = file.stat().st_size
    return sizes


def _describe_file(path: Path) -> WeightsInfo:
    """A file of weights, whose options are described if they lie beside it."""
    beside = options_beside(path.name, [one.name for one in path.parent.iterdir()])
    if beside is None:
        return _describe_weights(path, read_hdf5_shapes(path), path.stat().st_size)
    file = path.with_name(beside)
    return _describe_weights(path, read_hdf5_shapes(path), path.stat().st_size, _Given(file, _read(file)))


def _describe_distribution(found: Distribution) -> WeightsInfo:
    options: Options | OptionsError
    try:
        options = found.options
    except OptionsError as error:
        options = error
    given = _Given(Path(str(found.options_file)), options)
    described = _describe_weights(Path(found.source), found.shapes, found.weight_file.n_bytes, given)
    vocabulary = found.vocabulary()
    return dataclasses.replace(described, n_words=None if vocabulary is None else vocabulary.size)


class _Given(NamedTuple):
    """The options that go with weights, or why they cannot be read."""

    file: Path
    options: Options | OptionsError


def _read(file: Path) -> Options | OptionsError:
    try:
        return read_options(file, for_inference=True).options
    except OptionsError as error:
        return error


def _describe_weights(path: Path, shapes: Shapes, n_bytes: int, given: _Given | None = None) -> WeightsInfo:
    options = _infer(shapes, path)
    disagreement: str | None = None
    said = None if given is None else given.options
    if isinstance(said, OptionsError):
        disagreement = str(said)
    elif isinstance(said, Options):
        disagreement = "\n".join(differences(said, options)) or None
        if disagreement is None:
            options = dataclasses.replace(said, n_tokens_vocab=options.n_tokens_vocab)
    names = {name.hdf5: name.own for name in weight_names(options)}
    return WeightsInfo(
        path=path,
        options=options,
        arrays=_arrays((name, own, shapes[name]) for name, own in names.items() if name in shapes),
        n_bytes=n_bytes,
        options_file=None if given is None else given.file,
        disagreement=disagreement,
    )


def _infer(shapes: Shapes, path: Path) -> Options:
    """Options from the shapes, which they then explain to the last one."""
    options = infer_options(shapes, str(path))
    try:
        names = weight_names(options)
        needed = {name.hdf5: name.shape for name in names if not name.is_softmax or name.hdf5 in shapes}
        check_shapes(shapes, needed, str(path))
    except WeightsError as error:
        problems = str(error).partition("\n")[2].replace("the options need", "the other arrays need")
        raise WeightsError(f"{path}: its arrays are not those of a biLM:\n{problems}") from None
    return options


def _arrays(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[ArrayInfo, ...]:
    """From names in the file, our own names, and shapes."""
    return tuple(
        ArrayInfo(name, shape, next(part for start, part in _PARTS if own.startswith(start)))
        for name, own, shape in entries
    )
