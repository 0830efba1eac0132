"""Speed of embedding, from the lines of a text to the finished file, beside the machine's own.

python -m tests.benchmarks.embed --preset small --sentences 1000
"""

import resource
import tempfile
from itertools import islice
from pathlib import Path

import click
import keras
import numpy as np

from bilm.data.corpus import read_sentences
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.hdf5_output import FileFormat, embed_file
from bilm.models.encoder import Encoder
from bilm.options import PRESETS, Options
from bilm.weights.hdf5_file import write_hdf5
from bilm.weights.names import weight_names
from tests.benchmarks import operations
from tests.benchmarks.text import benchmark_text, preset_flag, text_flag
from tests.helpers import write_json


@click.command()
@preset_flag
@click.option(
    "--sentences", "n_sentences", default=5000, show_default=True, help="Of the text, from its start."
)
@click.option("--rounds", default=2, show_default=True, help="Times each is run; the best counts.")
@text_flag
def main(preset: str, n_sentences: int, rounds: int, text: Path | None) -> None:
    """Print tokens/s, the share of the machine's peak and the peak memory."""
    options = PRESETS[preset]
    with tempfile.TemporaryDirectory() as directory:
        sentences = read_sentences(text or benchmark_text(Path(directory), "valid"))
        lines = [" ".join(words) for words in islice(sentences, n_sentences)]
        n_tokens = sum(len(line.split()) for line in lines)
        types = set(" ".join(lines).split())
        print(f"peak: {operations.matrix_product_peak():.0f} GFLOP/s in float32 products of 2048 x 2048")
        print(f"{preset}: {len(lines):,} sentences, {n_tokens:,} tokens, {len(types):,} types")
        files = write_random_model(options, Path(directory))
        times, products = [], []
        for _ in range(rounds):
            products.append(operations.time_products())
            times.append(embed(files, lines, Path(directory) / "out.hdf5"))
            products.append(operations.time_products())
    best, memory = min(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    needed = needed_operations(options, types, n_tokens + 2 * len(lines))
    wall, processor = operations.utilisation(needed, best, operations.Seconds(*np.mean(products, axis=0)))
    print(
        f"bilm embed, from lines to the file: {n_tokens / best.wall:,.0f} tokens/s; utilisation {wall:.0%}, "
        f"by processor time {processor:.0%}; {memory:.2f} GB at most"
    )


def write_random_model(options: Options, directory: Path) -> tuple[Path, Path]:
    """A model of the published shape, its weights random."""
    keras.utils.set_random_seed(0)
    encoder = Encoder(options)
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


def needed_operations(options: Options, types: set[str], n_tokens: int) -> float:
    """Every type encoded once, the LSTMs over all tokens, sentence marks included."""
    most = options.char_cnn.max_characters_per_token
    lengths = np.array([min(most, len(word.encode()) + 2) for word in types])
    words = operations.word_operations(options, lengths)
    return words.forward + operations.lstm_operations(options, n_tokens).forward


if __name__ == "__main__":
    main()
