"""Speed of embedding on each backend of Keras, from lines to vectors, compiling included and then once more.

    python -m tests.benchmarks.backends --preset small --sentences 1000
    python -m tests.benchmarks.backends --preset small --roads torch,jax --precision bfloat16

Each backend runs in a process of its own, one after the other, with the same model and text. ``padded`` is
PyTorch with the design that AllenNLP published: batches of 32 sentences in file order, padded, every token
through the convolutions.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click
import numpy as np

from bilm.options import PRESETS
from tests.benchmarks import operations
from tests.benchmarks.text import first_lines, precisions_flag, preset_flag, sentences_flag, text_flag
from tests.helpers import python

_PLAIN_ROWS = 32
_ROADS = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax", "padded": "torch"}


@click.command()
@preset_flag
@sentences_flag
@precisions_flag
@text_flag
@click.option("--roads", default=",".join(_ROADS), show_default=True, help="Which are compared.")
def main(preset: str, n_sentences: int, precisions: tuple[str, ...], text: Path | None, roads: str) -> None:
    """Print tokens/s of each; its ratio to the first, and how far its vectors are from those of the first."""
    from tests.benchmarks.embed import write_random_model

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        lines, n_tokens = first_lines(n_sentences, text, path)
        (path / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        write_random_model(PRESETS[preset], path)
        click.echo(f"{preset}: {len(lines):,} sentences, {n_tokens:,} tokens")
        speeds: list[float] = []
        vectors: list[np.ndarray] = []
        for name, precision in product(roads.split(","), precisions):
            arguments = f"{name!r}, {directory!r}, {precision!r}"
            code = f"from tests.benchmarks import backends; print(*backends.run({arguments}))"
            done = python("-c", code, KERAS_BACKEND=_ROADS[name])
            if done.returncode:
                sys.exit(done.stderr)
            first, again = (n_tokens / float(seconds) for seconds in done.stdout.split()[-2:])
            speeds.append(first)
            vectors.append(np.load(path / "vectors.npy"))
            ratio, difference = speeds[-1] / speeds[0], np.abs(vectors[-1] - vectors[0]).max()
            click.echo(
                f"{name:>10}, {precision}: {first:8,.0f} tokens/s, {ratio:.2f}; difference {difference:.1e}; "
                f"again {again:,.0f} tokens/s"
            )


def run(road: str, directory: str, precision: str) -> tuple[float, float]:
    """Seconds from lines to vectors, compiling included, and once more."""
    import bilm

    if road == "tensorflow":
        operations.allow_tf32(precision)

    folder = Path(directory)
    files = folder / "options.json", folder / "weights.hdf5"
    lines = (folder / "text.txt").read_text(encoding="utf-8").splitlines()
    sentences = [line.split() for line in lines]
    embedder = None if road == "padded" else bilm.ElmoEmbedder(*files, precision=precision)
    begin = time.perf_counter()
    found = list(embedder.embed_sentences(sentences) if embedder else padded(files, sentences))
    middle = time.perf_counter()
    np.save(folder / "vectors.npy", np.concatenate(found[:_PLAIN_ROWS], axis=1))
    again = time.perf_counter()
    list(embedder.embed_sentences(sentences) if embedder else padded(files, sentences))
    return middle - begin, time.perf_counter() - again


def padded(files: tuple[Path, Path], sentences: list[list[str]]) -> Iterator[np.ndarray]:
    """The same by padded batches, every token encoded."""
    import torch

    import bilm
    from bilm.backend.keras_backend import keras
    from bilm.models import sentence_encoder as inference

    encoder = bilm.BidirectionalLanguageModel(*files).encoder
    batcher = bilm.Batcher(None, encoder.char_cnn.options.max_characters_per_token)
    with torch.no_grad():
        for first in range(0, len(sentences), _PLAIN_ROWS):
            batch = sentences[first : first + _PLAIN_ROWS]
            ids = keras.ops.convert_to_tensor(np.asarray(batcher.batch_sentences(batch), np.int32))
            mask = inference.token_mask(ids)
            words = encoder.char_cnn(keras.ops.where(ids > 0, ids - 1, 260)) * mask[..., None]
            layers, _ = inference.run_sentences(encoder, words, inference.count_tokens(mask))
            for rows, words in zip(keras.ops.convert_to_numpy(layers), batch, strict=True):
                yield rows[:, 1 : 1 + len(words)]


if __name__ == "__main__":
    main()
