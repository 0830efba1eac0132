"""Speed of embedding, from the lines of a text to the finished file, beside the machine's own.

python -m tests.benchmarks.embed --preset small --sentences 1000
python -m tests.benchmarks.embed --preset small --precision float32 --precision bfloat16
"""

import resource
import tempfile
import time
from pathlib import Path

import click
import keras
import numpy as np

from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.hdf5_output import FileFormat, embed_file
from bilm.models.encoder import Encoder
from bilm.options import PRESETS, Options
from bilm.weights.hdf5_file import write_hdf5
from bilm.weights.names import weight_names
from tests.benchmarks import operations
from tests.benchmarks.text import first_lines, precisions_flag, preset_flag, sentences_flag, text_flag
from tests.helpers import write_json


@click.command()
@preset_flag
@sentences_flag
@precisions_flag
@click.option("--rounds", default=2, show_default=True, help="Times each is run; the best counts.")
@text_flag
def main(preset: str, n_sentences: int, precisions: tuple[str, ...], rounds: int, text: Path | None) -> None:
    """Print tokens/s, the share of the machine's peak and the peak memory."""
    options = PRESETS[preset]
    with tempfile.TemporaryDirectory() as directory:
        lines, n_tokens = first_lines(n_sentences, text, Path(directory))
        types = set(" ".join(lines).split())
        print(f"{operations.peak()}\n{preset}: {len(lines):,} sentences, {n_tokens:,} tokens")
        files = write_random_model(options, Path(directory))
        times, products = [], []
        for _ in range(rounds):
            products.append(operations.product_seconds())
            times.append([embed(files, lines, Path(directory) / "out.hdf5", one) for one in precisions])
            products.append(operations.product_seconds())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    needed = needed_operations(options, types, n_tokens + 2 * len(lines))
    for precision, best in zip(precisions, np.min(times, axis=0), strict=True):
        share = operations.utilisation(needed, best, np.mean(products))
        print(f"{precision}, from lines to the file: {n_tokens / best:,.0f} tokens/s; {share:.0%}")
    print(f"{memory:.2f} GB at most")


def write_random_model(options: Options, directory: Path) -> tuple[Path, Path]:
    """A model of the published shape, its weights random."""
    keras.utils.set_random_seed(0)
    encoder = Encoder(options)
    encoder.build()
    weights = directory / "weights.hdf5"
    write_hdf5(weights, {v.path: v.numpy() for v in encoder.weights}, weight_names(options))
    return write_json(directory / "options.json", options.to_inference_json()), weights


def embed(files: tuple[Path, Path], lines: list[str], outfile: Path, precision: str = "float32") -> float:
    """Seconds of embedding the lines into a file, compiled beforehand, nothing remembered."""
    operations.allow_tf32(precision)
    embedder = ElmoEmbedder(*files, precision=precision)
    embedder.embed_sentence(["a"])
    start = time.perf_counter()
    embed_file(embedder, lines, outfile, FileFormat(), overwrite=True)
    return time.perf_counter() - start


def needed_operations(options: Options, types: set[str], n_tokens: int) -> float:
    """Every type encoded once, the LSTMs over all tokens, sentence marks included."""
    most = options.char_cnn.max_characters_per_token
    lengths = np.array([min(most, len(word.encode()) + 2) for word in types])
    return (operations.word_operations(options, lengths) + operations.lstm_operations(options, n_tokens))[0]


if __name__ == "__main__":
    main()
