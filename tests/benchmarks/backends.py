"""Speed of embedding on each backend of Keras, from lines to vectors, compiling included and then once more.

    python -m tests.benchmarks.backends --preset small --sentences 1000
    python -m tests.benchmarks.backends --preset small --roads torch,jax --precision bfloat16

Each backend runs in a process of its own, one after the other, with the same model and text.
"""

import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import click
import numpy as np

from bilm.options import PRESETS
from tests.benchmarks import operations
from tests.benchmarks.text import first_lines, precisions_flag, preset_flag, sentences_flag, text_flag
from tests.helpers import python


@click.command()
@preset_flag
@sentences_flag
@precisions_flag
@text_flag
@click.option("--roads", default="tensorflow,torch,jax", show_default=True, help="Which are compared.")
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
            done = python("-c", code, KERAS_BACKEND=name)
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
    lines = (folder / "text.txt").read_text(encoding="utf-8").splitlines()
    sentences = [line.split() for line in lines]
    embedder = bilm.ElmoEmbedder(folder / "options.json", folder / "weights.hdf5", precision=precision)
    begin = time.perf_counter()
    found = list(embedder.embed_sentences(sentences))
    middle = time.perf_counter()
    np.save(folder / "vectors.npy", np.concatenate(found[:32], axis=1))
    again = time.perf_counter()
    list(embedder.embed_sentences(sentences))
    return middle - begin, time.perf_counter() - again


if __name__ == "__main__":
    main()
