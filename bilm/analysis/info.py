"""Describing a run directory or a weight file from names, shapes and records, without reading arrays."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from bilm.analysis.model_info import ArrayInfo, CheckpointInfo, RunInfo, WeightsInfo
from bilm.errors import OptionsError, WeightsError
from bilm.io import PathLike
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, read_calls, read_metrics
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
    """Describe a run directory, ours or bilm-tf's, or an HDF5 file of weights.

    Raises:
        BilmError: it is neither, or damaged; says where.
    """
    path = Path(path)
    if path.is_dir():
        return _describe_run(path)
    if not path.is_file():
        raise WeightsError(f"{path}: no such file or directory")
    return _describe_weights(path)


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


def _describe_weights(path: Path) -> WeightsInfo:
    shapes = read_hdf5_shapes(path)
    options = _infer(shapes, path)
    beside, disagreement = _options_beside(path), None
    if beside is not None:
        try:
            given = read_options(beside, for_inference=True).options
            disagreement = "\n".join(differences(given, options)) or None
        except OptionsError as error:
            disagreement = str(error)
        if disagreement is None:
            options = dataclasses.replace(given, n_tokens_vocab=options.n_tokens_vocab)
    names = {name.hdf5: name.own for name in weight_names(options)}
    return WeightsInfo(
        path=path,
        options=options,
        arrays=_arrays((name, own, shapes[name]) for name, own in names.items() if name in shapes),
        n_bytes=path.stat().st_size,
        options_file=beside,
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


def _options_beside(path: Path) -> Path | None:
    """Where ``bilm dump-weights`` puts the options of a weight file."""
    places = [path.with_suffix(".options.json"), path.with_name("options.json")]
    return next((place for place in places if place.is_file()), None)


def _arrays(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[ArrayInfo, ...]:
    """From names in the file, our own names, and shapes."""
    return tuple(
        ArrayInfo(name, shape, next(part for start, part in _PARTS if own.startswith(start)))
        for name, own, shape in entries
    )
