"""Describing a run directory or a weight file from names, shapes and records, without reading arrays."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bilm.analysis.model_info import ArrayInfo, CheckpointInfo, RunInfo, WeightsInfo
from bilm.errors import OptionsError, WeightsError
from bilm.foreign import is_hdf5
from bilm.io import PathLike
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, read_calls, read_metrics
from bilm.weights.distribution import HDF5_ENDS, Distribution, find_distribution, options_beside
from bilm.weights.infer_options import differences, infer_options
from bilm.weights.names import weight_names
from bilm.weights.shapes import Shapes, check_shapes, read_hdf5_shapes

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
    given = _Given(Path(found.options_source), options)
    described = _describe_weights(Path(found.source), found.shapes(), found.n_bytes, given)
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
