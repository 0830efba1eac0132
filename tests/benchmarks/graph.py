"""What one training step, or one batch of embedding, makes TensorFlow run: calls, time and bytes by kind.

    python -m tests.benchmarks.graph --preset laptop --batch-size 64 --precision bfloat16
    python -m tests.benchmarks.graph --preset small --precision float32 --precision bfloat16 --details

Calls and milliseconds, added up over threads, are of TensorFlow's profiler, so after all rewriting of the
graph; the least milliseconds of several runs. Bytes are those of inputs and outputs whose shapes are known in
the graph: without the words' encoder in training, and none in embedding, whose shapes are all unknown.
"""

import dataclasses
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from bilm.data.pipeline import training_batches
from bilm.data.stream import Order
from bilm.embedding.embedder import ElmoEmbedder
from bilm.io.shards import find_files
from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS, Options
from bilm.training.trainer import Trainer
from tests.benchmarks.embed import write_random_model
from tests.benchmarks.text import (
    benchmark_text,
    first_lines,
    precisions_flag,
    preset_flag,
    text_flag,
    vocabulary_of,
    words_of,
)

_XLA = "ExecuteAsyncOnStream"  # a call of a function that XLA has compiled, whatever it does in it
_KINDS = {
    "products": "MatMul BatchMatMulV2 _FusedMatMul Conv2D Einsum",
    "casts": "Cast",
    "joined": "ConcatV2 Pack TensorArrayGatherV3 TensorArrayConcatV3 TensorListStack TensorListConcatV2",
    "split": "Split SplitV Unpack Slice StridedSlice StridedSliceGrad Pad",
    "transposed": "Transpose",
    "gathered": "GatherV2 ResourceGather UnsortedSegmentSum",
    "XLA": _XLA,
}
_HOLD_OTHERS = "While StatelessWhile If StatelessIf PartitionedCall StatefulPartitionedCall".split()
_RUNS = 5
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
Row = tuple[int, float, float]  # calls, milliseconds, megabytes


@click.command()
@preset_flag
@precisions_flag
@click.option("--batch-size", default=128, show_default=True)
@click.option("--vocab-size", default=18_000, show_default=True)
@click.option("--optimizer", default="muon", show_default=True)
@click.option("--details", is_flag=True, help="Also the kinds of operations that take most time.")
@text_flag
def main(preset, precisions, batch_size, vocab_size, optimizer, details, text) -> None:
    """Print a table for a step of training and a batch of embedding in each precision."""
    changes = {"batch_size": batch_size, "optimizer": optimizer}
    for precision in precisions:
        options = PRESETS[preset].with_values({**changes, "precision": precision})
        options = dataclasses.replace(options, n_tokens_vocab=vocab_size)
        with tempfile.TemporaryDirectory() as directory:
            files = find_files([text or benchmark_text(Path(directory))])
            show(f"train {preset}, {precision}", training_step(options, files), details)
            show(f"embed {preset}, {precision}", embedding(options, Path(directory), text), details)


def training_step(options: Options, files: tuple[Path, ...]) -> dict[str, Row]:
    """Profile steps of a training, their bytes included."""
    trainer = Trainer(LanguageModel(options, options.precision))
    order = Order(shuffle=True)
    batches = training_batches(files, vocabulary_of(words_of(files), options.n_tokens_vocab), options, order)
    batch = next(batches).parts
    context.context().enable_run_metadata()
    trainer.step(batch, 1)
    graphs = context.context().export_run_metadata().function_graphs
    largest = max((graph.post_optimization_graph for graph in graphs), key=lambda graph: len(graph.node))
    return profiled(lambda: trainer.step(batch, 2), known_bytes(largest))


def embedding(options: Options, directory: Path, text: Path | None) -> dict[str, Row]:
    """Profile the embedding of 64 sentences."""
    lines, _ = first_lines(64, text, directory)
    embedder = ElmoEmbedder(*write_random_model(options, directory), precision=options.precision)
    sentences = [line.split() for line in lines]
    embedder.embed_batch(sentences)
    return profiled(lambda: embedder.embed_batch(sentences), {})


def known_bytes(graph: tf.compat.v1.GraphDef) -> dict[str, int]:
    """Bytes of the inputs and outputs with known shapes, by node."""
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(graph, name="")
    return {
        node.name: sum(
            one.dtype.size * (one.shape.num_elements() or 0) for one in (*node.inputs, *node.outputs)
        )
        for node in imported.get_operations()
    }


def profiled(run: Callable[[], Any], n_bytes: dict[str, int]) -> dict[str, Row]:
    """Calls, milliseconds and megabytes of each type of operation in a run, after one to warm up."""
    run()
    runs = [profile_of(run, n_bytes) for _ in range(_RUNS)]
    return {
        kind: (calls, min(own.get(kind, row)[1] for own in runs), moved)
        for kind, row in runs[0].items()
        for calls, _, moved in (row,)
    }


def profile_of(run: Callable[[], Any], n_bytes: dict[str, int]) -> dict[str, Row]:
    """The same of one run."""
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory):
            run()
        (file,) = Path(directory).rglob("*.xplane.pb")
        space = XSpace.FromString(file.read_bytes())
    rows = defaultdict(lambda: np.zeros(3))
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            node, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
            if kind == _XLA or (hasattr(tf.raw_ops, kind) and kind not in _HOLD_OTHERS):
                rows[kind] += (1, event.duration_ps / 1e9, n_bytes.get(node, 0) / 1e6)
    return {kind: (int(row[0]), *row[1:]) for kind, row in rows.items()}


def show(title: str, rows: dict[str, Row], details: bool) -> None:
    """Print a table of kinds."""
    total: dict[str, Row] = {}
    for name, row in rows.items():
        kind = _KIND_OF.get(name, "other")
        total[kind] = tuple(map(sum, zip(total.get(kind, (0, 0, 0)), row, strict=True)))
    total["all"] = tuple(map(sum, zip(*rows.values(), strict=True)))
    print(f"{title:32} {'calls':>6} {'ms':>8} {'MB':>8}")
    if details:
        total |= dict(sorted(rows.items(), key=lambda item: -item[1][1])[:40])
    for kind, (n, milliseconds, megabytes) in total.items():
        print(f"  {kind:30} {n:6} {milliseconds:8.1f} {megabytes:8.1f}")


if __name__ == "__main__":
    main()
