"""Speed of embedding, beside batches of 32 sentences in file order whose every token is encoded.

    python -m tests.benchmarks.embed --preset small --sentences 1000

Both use the same encoder and take turns, so that a machine whose speed drifts is fair to both.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import keras
import numpy as np
import tensorflow as tf

from bilm.data.batcher import Batcher
from bilm.data.corpus import read_sentences
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.hdf5_output import FileFormat, embed_file
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.options import PRESETS, Options
from bilm.options.file import load_inference_options
from bilm.weights.hdf5_file import write_hdf5
from bilm.weights.names import weight_names
from tests.benchmarks import operations
from tests.benchmarks.text import benchmark_text
from tests.helpers import write_json

_PLAIN_ROWS = 32


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), default="small", show_default=True)
@click.option(
    "--sentences", "n_sentences", default=5000, show_default=True, help="Of the text, from its start."
)
@click.option("--rounds", default=2, show_default=True, help="Times each is run; the best counts.")
@click.option("--text", type=click.Path(path_type=Path), help="One sentence per line.  [default: WikiText-2]")
@click.option("--plain/--no-plain", default=True, help="Run the other road too.")
def main(preset: str, n_sentences: int, rounds: int, text: Path | None, plain: bool) -> None:
    """Print tokens/s, the ratio, the share of the machine's peak and the peak memory."""
    options = PRESETS[preset]
    with tempfile.TemporaryDirectory() as directory:
        sentences = read_sentences(text or benchmark_text(Path(directory), "valid"))
        lines = [" ".join(words) for words in islice(sentences, n_sentences)]
        n_tokens = sum(len(line.split()) for line in lines)
        types = set(" ".join(lines).split())
        print(f"peak: {operations.matrix_product_peak():.0f} GFLOP/s in float32 products of 2048 x 2048")
        print(f"{preset}: {len(lines):,} sentences, {n_tokens:,} tokens, {len(types):,} types")
        files = write_random_model(options, Path(directory))
        fast, slow, products = [], [], []
        for _ in range(rounds):
            products.append(operations.time_products())
            fast.append(embed(files, lines, Path(directory) / "out.hdf5"))
            products.append(operations.time_products())
            if len(fast) == 1:  # before the other road has been taken
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            if plain:
                slow.append(embed_plainly(files, lines))
    best = min(fast)
    needed = needed_operations(options, types, n_tokens + 2 * len(lines))
    wall, processor = operations.utilisation(needed, best, operations.Seconds(*np.mean(products, axis=0)))
    print(
        f"bilm embed, from lines to the file: {n_tokens / best.wall:,.0f} tokens/s; utilisation {wall:.0%}, "
        f"by processor time {processor:.0%}; {memory:.2f} GB after its first round"
    )
    if plain:
        ratio = min(slow) / best.wall
        print(f"batches of {_PLAIN_ROWS}: {n_tokens / min(slow):,.0f} tokens/s; ratio {ratio:.1f}")


def write_random_model(options: Options, directory: Path) -> tuple[Path, Path]:
    """A model of the published shape, its weights random."""
    keras.utils.set_random_seed(0)
    encoder = Encoder(options, name="encoder")
    encoder.build()
    weights = directory / "weights.hdf5"
    write_hdf5(weights, {v.path: v.numpy() for v in encoder.weights}, weight_names(options))
    return write_json(directory / "options.json", options.to_inference_json()), weights


def embed(files: tuple[Path, Path], lines: list[str], outfile: Path) -> operations.Seconds:
    """Time of embedding the lines into a file, compiled beforehand, nothing remembered."""
    ElmoEmbedder(*files)  # the files are in the page cache then
    embedder = ElmoEmbedder(*files)
    embedder.embed_sentence(["a"])
    start = operations.Seconds.now()
    embed_file(embedder, lines, outfile, FileFormat(), overwrite=True)
    return operations.Seconds.now().since(start)


def embed_plainly(files: tuple[Path, Path], lines: list[str]) -> float:
    """Seconds of embedding batches in file order, every token through the CNN; nothing is written."""
    encoder = inference.read_encoder(load_inference_options(files[0]), files[1])

    def run(ids: tf.Tensor) -> tf.Tensor:
        mask = inference.token_mask(ids)
        vectors = encoder.char_cnn(tf.where(ids > 0, ids - 1, 260))
        words = tf.where(mask[..., None], vectors, 0.0)
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        return inference.without_marks(inference.run_sentences(encoder, words, lengths).layers, lengths)

    compiled = tf.function(run, input_signature=[tf.TensorSpec([None, None, 50], tf.int32)])
    compiled(Batcher(None, 50).batch_sentences([["a"]]).astype(np.int32))
    started = time.perf_counter()
    for ids in plain_batches(lines):
        compiled(ids).numpy()
    return time.perf_counter() - started


def plain_batches(lines: list[str]) -> Iterator[np.ndarray]:
    """Character ids of the sentences in their order."""
    batcher = Batcher(None, 50)
    for start in range(0, len(lines), _PLAIN_ROWS):
        sentences = [line.split() for line in lines[start : start + _PLAIN_ROWS]]
        yield batcher.batch_sentences(sentences).astype(np.int32)


def needed_operations(options: Options, types: set[str], n_tokens: int) -> float:
    """Every type encoded once, the LSTMs over all tokens, sentence marks included."""
    most = options.char_cnn.max_characters_per_token
    lengths = np.array([min(most, len(word.encode()) + 2) for word in types])
    words = operations.word_operations(options, lengths)
    return words.forward + operations.lstm_operations(options, n_tokens).forward


if __name__ == "__main__":
    main()
