"""Training curves of runs, and a picture of them."""

import colorsys
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bilm.analysis.pictures import Picture, Series, Style, View, n_points
from bilm.errors import DataError
from bilm.io import PathLike
from bilm.run_directory.records import METRICS_FILE, HeldoutRecord, Metrics, TrainRecord, read_metrics

X_AXES = {"step": "training steps", "tokens": "tokens", "epoch": "epochs", "time": "hours"}
"""Horizontal axes of curves, and their labels."""

SAMPLED, FULL = "training, sampled softmax", "training"
HELDOUT, SLICE, BEST = "heldout", "training text, full softmax", "best heldout"
"""The kinds of curves."""

# Okabe and Ito's colours, which differ for colour-blind readers too; without their yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def load_curves(directories: Sequence[PathLike]) -> dict[str, Metrics]:
    """Read the metrics of run directories, by their names, or by their paths where two share a name.

    Raises:
        DataError: a directory has no metrics, or damaged ones.
    """
    paths = [Path(directory) for directory in directories]
    names = [path.resolve().name for path in paths]
    return {
        name if names.count(name) == 1 else str(path): _read(path)
        for name, path in zip(names, paths, strict=True)
    }


def _read(directory: Path) -> Metrics:
    file = directory / METRICS_FILE
    metrics = read_metrics(file) if file.is_file() else None
    if metrics is None or metrics.last is None:
        raise DataError(f"{directory}: has no {METRICS_FILE} with records, which training writes")
    return metrics


Curve = tuple[str, list[float], list[float]]


def curves_of(metrics: Metrics, x: str) -> Iterator[Curve]:
    """Kind, places and perplexities of each curve that a run has; NaN where there is a gap.

    Args:
        metrics: of a run.
        x: one of `X_AXES`; time is that since the first record.
    """
    train, heldout = metrics.train, metrics.heldout
    places = _places(metrics, x)
    at_train = [places[record.step] for record in train]
    at_heldout = [places[record.step] for record in heldout]
    # A gap stays a gap: a call may sample the softmax and the next one not.
    curves: list[Curve] = [
        (SAMPLED, at_train, [record.perplexity if record.sampled else math.nan for record in train]),
        (FULL, at_train, [math.nan if record.sampled else record.perplexity for record in train]),
        (SLICE, at_heldout, [record.train_perplexity or math.nan for record in heldout]),
        (HELDOUT, at_heldout, [record.perplexity for record in heldout]),
        (BEST, at_heldout, [record.perplexity if record is metrics.best else math.nan for record in heldout]),
    ]
    return (curve for curve in curves if n_points(curve[2]))


def _places(metrics: Metrics, x: str) -> dict[int, float]:
    """The place of each step; tokens and epochs, which each call counts from zero, are summed over calls."""
    records: list[TrainRecord | HeldoutRecord] = [*metrics.train, *metrics.heldout]
    records.sort(key=lambda record: record.step)
    places: dict[int, float] = {}
    before = offset = 0.0
    for record in records:
        value = (record.time - records[0].time) / 3600 if x == "time" else getattr(record, x)
        if value < before and x in ("tokens", "epoch"):
            offset += before
        places[record.step] = offset + value
        before = value
    return places


def colours(n_runs: int) -> list[str]:
    """A colour for each run, as ``#rrggbb``: told apart without colour vision while there are few."""
    if n_runs <= len(_COLOURS):
        return list(_COLOURS[:n_runs])
    hues = (colorsys.hls_to_rgb(i / n_runs, 0.4, 0.8) for i in range(n_runs))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues]


_STYLES = {
    HELDOUT: Style("solid", 1.8, "circle", 3.5),
    BEST: Style(marker="circle-open", size=10),
    SLICE: Style("dash", 1.4),
    FULL: Style("solid", 0.9, opacity=0.6),
    SAMPLED: Style("dot", 1.1, opacity=0.9),
}


def curves_picture(runs: Mapping[str, Metrics], x: str) -> Picture:
    """Perplexity of runs in training, of heldout text and of training text, a colour for each run.

    Args:
        runs: at least one, by their names in the legend.
        x: one of `X_AXES`, which an image shows and a page begins with; time is that since the first record.
    """
    legends = []
    for name, run in runs.items():
        best = run.best
        legends.append(name + (f", best {best.perplexity:,.2f} at step {best.step:,}" if best else ""))
    views = [
        View(
            label,
            label,
            [
                Series(xs, ys, _STYLES[kind], colour, name=kind, group=legend)
                for run, legend, colour in zip(runs.values(), legends, colours(len(runs)), strict=True)
                for kind, xs, ys in curves_of(run, axis)
            ],
        )
        for axis, label in X_AXES.items()
    ]
    note = "Click the legend to hide a curve; drag to zoom, double-click to zoom out."
    title = textwrap.shorten(", ".join(runs), 120, placeholder="…")
    return Picture(title, note, "perplexity", views, [*X_AXES].index(x), is_log=True)
