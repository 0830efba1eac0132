"""Describing a run directory or a weight file from names, shapes and records, without reading arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py

from bilm.errors import OptionsError, WeightsError
from bilm.io import PathLike
from bilm.options import Options
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, CallRecord, Metrics, read_calls, read_metrics
from bilm.weights.distribution import HDF5_ENDS, Distribution, ModelFile, find_distribution, options_beside
from bilm.weights.hdf5_file import Shapes, check_shapes, read_hdf5_shapes
from bilm.weights.names import differences, infer_options, known_from_shapes, weight_names


@dataclasses.dataclass(frozen=True)
class ArrayInfo:
    """One array: its name in the file, its shape, and the part of the network that it belongs to."""

    name: str
    shape: tuple[int, ...]
    part: str


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
    """The members that run directories and weight files share.

    Attributes:
        path: of the directory or file.
        options: all of them, or those that could be inferred.
        arrays: of the model, without the state of an optimizer.
    """

    path: Path
    options: Options
    arrays: tuple[ArrayInfo, ...]

    @property
    def is_inferred(self) -> bool:
        """Whether the options are what the shapes tell, not those of a file."""
        return False

    @property
    def parts(self) -> dict[str, int]:
        """The number of parameters by part of the network."""
        counts: Counter[str] = Counter()
        for array in self.arrays:
            counts[array.part] += math.prod(array.shape)
        return dict(counts)

    def to_json(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "path": str(self.path),
            "parameters": sum(self.parts.values()),
            "parts": self.parts,
            "vocabulary": self.options.n_tokens_vocab,
            "arrays": [{"name": array.name, "shape": list(array.shape)} for array in self.arrays],
        }

    def lines(self) -> Iterator[str]:
        """Parameters and architecture, for people; of inferred options only what the shapes show."""
        yield f"parameters: {sum(self.parts.values()):,}"
        for part, n_values in self.parts.items():
            yield f"  {part:<14}{n_values:>14,}"
        lstm, cnn = self.options.lstm, self.options.char_cnn
        if cnn is not None:
            widths = sorted({width for width, _ in cnn.filters})
            span = f"{widths[0]}-{widths[-1]}" if widths else "no"
            line = f"{cnn.n_filters:,} filters of widths {span} over {cnn.embedding_dim} dimensions"
            if not self.is_inferred:
                line += (
                    f", {cnn.activation.value}, words of at most {cnn.max_characters_per_token} characters"
                )
            yield f"characters: {line}; highways: {cnn.n_highway}"
        line = f"{lstm.n_layers} x {lstm.dim:,}"
        line += f" projected to {lstm.projection_dim:,}" if lstm.use_projection else ", not projected"
        line += ", both directions" if self.options.bidirectional else ", forward only"
        if not self.is_inferred:
            line += ", residual" if lstm.use_skip_connections else ", not residual"
            clips = (("cell", lstm.cell_clip), ("projection", lstm.proj_clip))
            line += "".join(f", {name} clipped at {clip:g}" for name, clip in clips if clip)
        yield f"LSTM: {line}"


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

    def lines(self) -> Iterator[str]:
        """Everything for people, a line each."""
        options = self.options
        yield f"{self.path}: run directory, {len(self.files)} files, {_size(sum(self.files.values()))}"
        yield from super().lines()
        where = "vocab.txt" if self.has_vocabulary else "not in the directory"
        yield f"vocabulary: {options.n_tokens_vocab:,} words, {where}"
        sampled = f"{options.n_negative_samples_batch:,} classes sampled"
        yield (
            f"training: batches of {options.batch_size} x {options.unroll_steps} tokens, "
            f"{sampled if options.use_sampling else 'full softmax'}, "
            f"{options.optimizer.value} {options.learning_rate:g}, dropout {options.dropout:g}"
        )
        yield "checkpoints:" if self.checkpoints else "checkpoints: none yet"
        for one in self.checkpoints:
            name = one.prefix if one.step is None else f"step {one.step:,}"
            marks = [mark for mark, is_so in (("newest", one.is_newest), ("best", one.is_best)) if is_so]
            yield f"  {name:<16}{_size(one.n_bytes):>10}  {', '.join(marks)}".rstrip()
        if self.metrics is not None and (last := self.metrics.last) is not None:
            amount = f"{last.epoch:.2f} epochs, {last.tokens:,} tokens"
            yield f"trained: to step {last.step:,}; in the last command {amount}"
        if self.metrics is not None and self.metrics.heldout:
            newest, best = self.metrics.heldout[-1], self.metrics.best
            line = f"heldout perplexity: {newest.perplexity:,.2f} at step {newest.step:,}"
            yield line + (f", best {best.perplexity:,.2f} at step {best.step:,}" if best else "")
        if (call := self.last_call) is not None:
            versions = ", ".join(f"{name} {version}" for name, version in call.versions.items())
            yield f"last command: {call.command}"
            yield f"  {_when(call.time)}, from step {call.step:,}, seed {call.seed}; {versions}"


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
    options_file: str | None
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
            "options_file": self.options_file,
            "disagreement": self.disagreement,
            "bytes": self.n_bytes,
            "words": self.n_words,
        }

    def lines(self) -> Iterator[str]:
        """Everything for people, a line each."""
        yield f"{self.path}: weights, {len(self.arrays)} arrays, {_size(self.n_bytes)}"
        yield from super().lines()
        if self.options.n_tokens_vocab is not None:
            yield f"vocabulary: {self.options.n_tokens_vocab:,} words"
        elif self.n_words is not None:
            yield f"vocabulary: {self.n_words:,} words, not needed for embedding"
        inferred = "the above is inferred from the arrays' shapes"
        if self.options_file is None:
            yield f"options: none next to it; {inferred}"
        elif self.disagreement is None:
            yield f"options: {self.options_file} fits"
        else:
            yield f"options: {self.options_file} does not fit; {inferred}"
            yield from (f"  {line}" for line in self.disagreement.splitlines())


def _size(n_bytes: int) -> str:
    """Bytes in readable units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"


def _when(seconds: float) -> str:
    """Unix seconds as the local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"at {seconds:g} s"


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
    return _describe_weights(path)


def _describe_run(path: Path) -> RunInfo:
    from bilm.run_directory.directory import RunDirectory
    from bilm.run_directory.state import read_state

    run = RunDirectory.open(path)
    prefixes: dict[Path, int | None] = {run.index.prefix(step): step for step in run.index.steps()}
    step = newest = best = None
    if run.index.exists():
        checkpoint = run.latest(read=False)
        newest, step, state = Path(checkpoint.prefix), checkpoint.step(), read_state(checkpoint)
        best = state and state.best
        prefixes.setdefault(newest, None)  # bilm-tf lets it lie elsewhere
    calls = read_calls(path / CALLS_FILE) if (path / CALLS_FILE).exists() else ()
    return RunInfo(
        path=path,
        options=run.options,
        arrays=_arrays((name.tf1, name.own, name.shape) for name in run.names),
        step=step,
        checkpoints=tuple(
            CheckpointInfo(
                prefix=str(prefix),
                step=step,
                n_bytes=sum(_n_bytes(prefix.parent, f"{prefix.name}.").values()),
                is_newest=prefix == newest,
                is_best=best is not None and step == best.step,
            )
            for prefix, step in prefixes.items()
        ),
        has_vocabulary=run.vocabulary_file.is_file(),
        metrics=read_metrics(path / METRICS_FILE) if (path / METRICS_FILE).exists() else None,
        last_call=calls[-1] if calls else None,
        files=_n_bytes(path),
    )


def _n_bytes(directory: Path, start: str = "") -> dict[str, int]:
    """Sizes of the files whose names begin so."""
    sizes = {}
    for file in sorted(directory.iterdir()):
        if file.name.startswith(start) and file.is_file():
            with contextlib.suppress(FileNotFoundError):  # a running training removes old checkpoints
                sizes[file.name] = file.stat().st_size
    return sizes


def _describe_weights(path: Path) -> WeightsInfo:
    if path.is_file() and (h5py.is_hdf5(path) or path.name.endswith(HDF5_ENDS)):
        beside = options_beside(path.name, [one.name for one in path.parent.iterdir()])
        options_file = None if beside is None else ModelFile(path.with_name(beside))
        found = None if options_file is None else Distribution(path, ModelFile(path), options_file)
    else:
        found = find_distribution(path)
    shapes = read_hdf5_shapes(path) if found is None else found.shapes
    source = str(path) if found is None else found.source
    options, disagreement, vocabulary = _infer(shapes, source), None, None
    if found is not None:
        try:
            disagreement = "\n".join(differences(found.options, options)) or None
            if disagreement is None:
                options = dataclasses.replace(found.options, n_tokens_vocab=options.n_tokens_vocab)
        except OptionsError as error:
            disagreement = str(error)
        vocabulary = found.vocabulary()
    names = {name.hdf5: name.own for name in weight_names(options)}
    return WeightsInfo(
        path=Path(source),
        options=options,
        arrays=_arrays((name, own, shapes[name]) for name, own in names.items() if name in shapes),
        n_bytes=path.stat().st_size if found is None else found.weight_file.n_bytes,
        options_file=None if found is None else str(found.options_file),
        disagreement=disagreement,
        n_words=None if vocabulary is None else vocabulary.size,
    )


def _infer(shapes: Shapes, source: str) -> Options:
    """Options from the shapes, which they then explain to the last one."""
    options = infer_options(shapes, source)
    try:
        names = weight_names(options)
        needed = {name.hdf5: name.shape for name in names if not name.is_softmax or name.hdf5 in shapes}
        check_shapes(shapes, needed, source)
    except WeightsError as error:
        problems = str(error).partition("\n")[2].replace("the options need", "the other arrays need")
        raise WeightsError(f"{source}: its arrays are not those of a biLM:\n{problems}") from None
    return options


# Parts of the network by the beginnings of our own names; the first that fits.
_PARTS = {
    "encoder/char_cnn/high_": "highways",
    "encoder/char_cnn/W_proj": "projection",
    "encoder/char_cnn/b_proj": "projection",
    "encoder/char_cnn/": "character CNN",
    "encoder/embedding": "word vectors",
    "encoder/forward_": "forward LSTM",
    "encoder/backward_": "backward LSTM",
    "softmax/": "softmax",
}


def _arrays(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[ArrayInfo, ...]:
    """From names in the file, our own names, and shapes."""
    return tuple(
        ArrayInfo(name, shape, next(part for start, part in _PARTS.items() if own.startswith(start)))
        for name, own, shape in entries
    )
