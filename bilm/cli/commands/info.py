"""``bilm info``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow
from bilm.io.messages import printable
from bilm.options import Options
from bilm.run_directory.records import CallRecord, Metrics

if TYPE_CHECKING:
    from bilm.analysis.info import ModelInfo, RunInfo, WeightsInfo


@click.command()
@click.argument("path", type=flags.FILE)
@click.option("--arrays", "with_arrays", is_flag=True, help="List every array with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(path: Path, with_arrays: bool, as_json: bool) -> None:
    """Describe PATH, any model: a run directory, a folder or ZIP of a model, or an HDF5 weight file.

    Prints parameters by part, hyper-parameters, checkpoints and training progress; for a weight file
    without options next to it, what can be inferred from the shapes of its arrays.
    """
    from bilm.analysis.info import describe  # h5py, which completion can do without

    if path.is_dir():
        import_tensorflow()
    found = describe(path)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    for line in _lines(found):
        click.echo(printable(line))
    if with_arrays:
        click.echo("arrays:")
        width = max(len(array.name) for array in found.arrays)
        for array in found.arrays:
            sizes = " x ".join(f"{size:,}" for size in array.shape)
            click.echo(printable(f"  {array.name:<{width}}  {sizes}"))


def _lines(found: RunInfo | WeightsInfo) -> Iterator[str]:
    from bilm.analysis.info import RunInfo, WeightsInfo

    if isinstance(found, RunInfo):
        yield f"{found.path}: run directory, {len(found.files)} files, {_size(sum(found.files.values()))}"
    else:
        yield f"{found.path}: weights, {len(found.arrays)} arrays, {_size(found.n_bytes)}"
    yield from _parts(found)
    yield from _architecture(found.options, isinstance(found, WeightsInfo) and found.is_inferred)
    yield from _run(found) if isinstance(found, RunInfo) else _weights(found)


def _parts(found: ModelInfo) -> Iterator[str]:
    yield f"parameters: {found.n_parameters:,}"
    for part, n_values in found.parts.items():
        yield f"  {part:<14}{n_values:>14,}"


def _architecture(options: Options, is_inferred: bool) -> Iterator[str]:
    """What the network is; of inferred options only what the shapes show."""
    lstm, cnn = options.lstm, options.char_cnn
    if cnn is not None:
        widths = sorted({width for width, _ in cnn.filters})
        span = f"{widths[0]}-{widths[-1]}" if widths else "no"
        line = f"{cnn.n_filters:,} filters of widths {span} over {cnn.embedding_dim} dimensions"
        if not is_inferred:
            line += f", {cnn.activation.value}, words of at most {cnn.max_characters_per_token} characters"
        yield f"characters: {line}; highways: {cnn.n_highway}"
    line = f"{lstm.n_layers} x {lstm.dim:,}"
    line += f" projected to {lstm.projection_dim:,}" if lstm.use_projection else ", not projected"
    line += ", both directions" if options.bidirectional else ", forward only"
    if not is_inferred:
        line += ", residual" if lstm.use_skip_connections else ", not residual"
        clips = (("cell", lstm.cell_clip), ("projection", lstm.proj_clip))
        line += "".join(f", {name} clipped at {clip:g}" for name, clip in clips if clip)
    yield f"LSTM: {line}"


def _weights(found: WeightsInfo) -> Iterator[str]:
    if found.options.n_tokens_vocab is not None:
        yield f"vocabulary: {found.options.n_tokens_vocab:,} words"
    elif found.n_words is not None:
        yield f"vocabulary: {found.n_words:,} words, not needed for embedding"
    if found.options_file is None:
        yield "options: none next to it; the above is inferred from the arrays' shapes"
    elif found.disagreement is None:
        yield f"options: {found.options_file} fits"
    else:
        yield f"options: {found.options_file} does not fit; the above is inferred from the arrays' shapes"
        yield from (f"  {line}" for line in found.disagreement.splitlines())


def _run(found: RunInfo) -> Iterator[str]:
    options = found.options
    where = "vocab.txt" if found.has_vocabulary else "not in the directory"
    yield f"vocabulary: {options.n_tokens_vocab:,} words, {where}"
    softmax = (
        f"{options.n_negative_samples_batch:,} classes sampled" if options.use_sampling else "full softmax"
    )
    yield (
        f"training: batches of {options.batch_size} x {options.unroll_steps} tokens, {softmax}, "
        f"{options.optimizer.value} {options.learning_rate:g}, dropout {options.dropout:g}"
    )
    yield from _checkpoints(found)
    if found.metrics is not None:
        yield from _course(found.metrics)
    if found.last_call is not None:
        yield from _call(found.last_call)


def _checkpoints(found: RunInfo) -> Iterator[str]:
    if not found.checkpoints:
        yield "checkpoints: none yet"
        return
    yield "checkpoints:"
    for one in found.checkpoints:
        name = one.prefix if one.step is None else f"step {one.step:,}"
        marks = [mark for mark, is_so in (("newest", one.is_newest), ("best", one.is_best)) if is_so]
        yield f"  {name:<16}{_size(one.n_bytes):>10}  {', '.join(marks)}".rstrip()


def _course(metrics: Metrics) -> Iterator[str]:
    if (last := metrics.last) is not None:
        amount = f"{last.epoch:.2f} epochs, {last.tokens:,} tokens"
        yield f"trained: to step {last.step:,}; in the last command {amount}"
    if metrics.heldout:
        newest, best = metrics.heldout[-1], metrics.best
        line = f"heldout perplexity: {newest.perplexity:,.2f} at step {newest.step:,}"
        yield line + (f", best {best.perplexity:,.2f} at step {best.step:,}" if best else "")


def _call(call: CallRecord) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in call.versions.items())
    yield f"last command: {call.command}"
    yield f"  {_when(call.time)}, from step {call.step:,}, seed {call.seed}; {versions}"


def _when(seconds: float) -> str:
    """Unix seconds as the local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"at {seconds:g} s"


def _size(n_bytes: int) -> str:
    """Bytes in readable units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"
