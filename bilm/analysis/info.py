"""Describe a run directory or a weight file from names, shapes and records, without reading arrays."""

import contextlib
import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bilm.io import PathLike, messages, run_files
from bilm.options import Options
from bilm.run_directory import records
from bilm.run_directory.files import is_run
from bilm.weights import distribution, names
from bilm.weights.arrays import check_arrays


def describe(path: PathLike) -> tuple[dict[str, Any], list[str]]:
    """Describe a model.

    Args:
        path: a run directory of bilm or bilm-tf; a folder or archive in the layout of vectors.nlpl.eu; or
            a weight file with its options beside it.

    Returns:
        The complete description, as a JSON object, and as lines of text without the list of arrays.

    Raises:
        BilmError: the path is something else, or a file is damaged; names the file.
    """
    path = Path(path)
    return _describe_run(path) if is_run(path) else _describe_weights(path)


def _describe_run(path: Path) -> tuple[dict[str, Any], list[str]]:
    from bilm.run_directory.directory import RunModel
    from bilm.run_directory.state import best_step

    model = RunModel(path)
    run, options = model.run, model.options
    prefixes: dict[Path, int | None] = {run.index.prefix(step): step for step in run.index.steps()}
    step = newest = best_at = None
    if run.index.exists():
        latest = run.latest(read=False)
        newest, step, best_at = Path(latest.prefix), latest.step(), best_step(latest)
        prefixes.setdefault(newest, None)  # in runs of bilm-tf it may be in another directory
    checkpoints: list[dict[str, Any]] = [
        {
            "prefix": str(prefix),
            "step": its_step,  # None if the name has no step
            "n_bytes": sum(_n_bytes(prefix.parent, f"{prefix.name}.").values()),
            "is_newest": prefix == newest,
            "is_best": best_at is not None and its_step == best_at,
        }
        for prefix, its_step in prefixes.items()
    ]
    metrics = records.read_metrics(path / run_files.METRICS_FILE)
    calls = records.read_calls(path / run_files.CALLS_FILE)
    last, heldout, best = metrics.last, metrics.heldout, metrics.best
    files = _n_bytes(path)
    facts = {
        "kind": "run",
        **_facts(path, options, ((name.tf1, name.own, name.shape) for name in run.names)),
        "options": options.to_json(),
        "step": step,
        "checkpoints": checkpoints,
        "trained": {"step": last.step, "epoch": last.epoch, "tokens": last.tokens} if last else None,
        "last_heldout": heldout[-1].to_json() if heldout else None,
        "best_heldout": best.to_json() if best else None,
        "last_call": dataclasses.asdict(calls[-1]) if calls else None,
        "files": files,
    }
    where = model.vocabulary_file.path.name if model.vocabulary_file else "not in the directory"
    form = f", normal form {options.unicode_form}" if options.unicode_form else ""
    sampled = f"{options.n_negative_samples_batch:,} classes sampled"
    lines = [
        f"{path}: run directory, {len(files)} files, {messages.size_of(sum(files.values()))}",
        *_architecture(facts["parts"], options),
        f"vocabulary: {options.n_tokens_vocab:,} words, {where}" + form,
        f"text: {model.steps.describe()}",
        f"training: batches of {options.batch_size} x {options.unroll_steps} tokens, "
        f"{sampled if options.use_sampling else 'full softmax'}, "
        f"{options.optimizer.value} {options.step_size:g}, dropout {options.dropout:g}",
        "checkpoints:" if checkpoints else "checkpoints: none yet",
    ]
    for checkpoint in checkpoints:
        name = checkpoint["prefix"] if checkpoint["step"] is None else f"step {checkpoint['step']:,}"
        marks = ", ".join(mark for mark in ("newest", "best") if checkpoint[f"is_{mark}"])
        lines.append(f"  {name:<16}{messages.size_of(checkpoint['n_bytes']):>10}  {marks}".rstrip())
    if last is not None:
        begun = next((call.step for call in reversed(calls) if not call.n_done), -1)
        amount = f"; {last.epoch:.2f} epochs, {last.tokens:,} tokens in the last train or restart"
        lines.append(f"recorded: up to step {last.step:,}{amount if last.step > begun else ''}")
    if heldout:
        line = f"heldout perplexity: {heldout[-1].perplexity:,.2f} at step {heldout[-1].step:,}"
        lines.append(line + (f", best {best.perplexity:,.2f} at step {best.step:,}" if best else ""))
    for call in calls[-1:]:
        versions = ", ".join(f"{name} {version}" for name, version in call.versions.items())
        lines.append(f"last command: {call.command}")
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(call.time))
        lines.append(f"  {when}, from step {call.step:,}, seed {call.seed}; {versions}")
    return facts, lines


def _n_bytes(directory: Path, start: str = "") -> dict[str, int]:
    """Return the sizes of the files whose names begin with `start`."""
    sizes = {}
    for file in sorted(directory.iterdir()):
        if file.name.startswith(start) and file.is_file():
            with contextlib.suppress(FileNotFoundError):  # a running training removes old checkpoints
                sizes[file.name] = file.stat().st_size
    return sizes


def _describe_weights(path: Path) -> tuple[dict[str, Any], list[str]]:
    model = distribution.find_distribution(path)
    source, shapes, n_bytes = model.source, model.dumped.shapes, model.dumped.n_bytes
    (n_tokens, *_) = shapes.get("softmax/b") or shapes.get("embedding") or (None,)
    options = dataclasses.replace(model.options, n_tokens_vocab=n_tokens)
    stored = check_arrays(shapes, names.weight_names(options), source)
    vocabulary = model.vocabulary()
    facts = {
        "kind": "weights",
        **_facts(source, options, ((name.hdf5, name.own, name.shape) for name in stored)),
        "options": {"bidirectional": options.bidirectional} | options.to_inference_json(),
        "options_file": str(model.options_file),
        "bytes": n_bytes,
        "words": vocabulary and vocabulary.size,
    }
    lines = [f"{source}: weights, {len(stored)} arrays, {messages.size_of(n_bytes)}"]
    lines += _architecture(facts["parts"], options)
    if n_tokens is not None:
        lines.append(f"vocabulary: {n_tokens:,} words")
    elif vocabulary is not None:
        lines.append(f"vocabulary: {vocabulary.size:,} words, not needed for embedding")
    lines += [f"text: {model.steps.describe()}", f"options: {model.options_file}"]
    return facts, lines


# Part of the network by the beginning of a variable name; the first match counts.
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


def _facts(
    source: PathLike, options: Options, arrays: Iterable[tuple[str, str, tuple[int, ...]]]
) -> dict[str, Any]:
    """Return the facts about any model; an array is its name in the file, its name in bilm, and its shape."""
    parts: Counter[str] = Counter()
    listed = []
    for name, own, shape in arrays:
        parts[next(part for start, part in _PARTS.items() if own.startswith(start))] += math.prod(shape)
        listed.append({"name": name, "shape": list(shape)})
    return {
        "path": str(source),
        "parameters": parts.total(),
        "parts": dict(parts),
        "vocabulary": options.n_tokens_vocab,
        "arrays": listed,
    }


def _architecture(parts: dict[str, int], options: Options) -> Iterator[str]:
    """Yield lines on parameters and architecture."""
    yield f"parameters: {sum(parts.values()):,}"
    for part, n_values in parts.items():
        yield f"  {part:<14}{n_values:>14,}"
    lstm, cnn = options.lstm, options.char_cnn
    if cnn is not None:
        widths = sorted({width for width, _ in cnn.filters})
        span = f"{widths[0]}-{widths[-1]}" if widths else "no"
        line = f"{cnn.n_filters:,} filters of widths {span} over {cnn.embedding_dim} dimensions"
        line += f", {cnn.activation.value}, words of at most {cnn.max_characters_per_token} characters"
        yield f"characters: {line}; highways: {cnn.n_highway}"
    line = f"{lstm.n_layers} x {lstm.dim:,}"
    line += f" projected to {lstm.projection_dim:,}" if lstm.use_projection else ", not projected"
    line += ", both directions" if options.bidirectional else ", forward only"
    line += ", residual" if lstm.use_skip_connections else ", not residual"
    clips = (("cell", lstm.cell_clip), ("projection", lstm.proj_clip))
    line += "".join(f", {name} clipped at {clip:g}" for name, clip in clips if clip)
    yield f"LSTM: {line}"
