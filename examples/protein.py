"""Embed protein sequences as SeqVec does: thousands of one-letter tokens per sequence.

    python examples/protein.py
    python examples/protein.py --options-file options.json --weight-file weights.hdf5

SeqVec (Heinzinger et al. 2019) is an ELMo whose words are amino acids; bilm reads its files. The vector of a
residue is the sum of the three layers, the vector of a protein the mean over its residues.

The example measures time and memory only: the sequences are random letters with the frequencies of amino
acids. Without the two files the weights are random too, in SeqVec's shape (LSTM 4096, projections 512), or in
a smaller one with --quick. Time and memory do not depend on letters and weights.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bilm import Elmo, ElmoEmbedder
from bilm.errors import BilmError
from bilm.options import PRESETS

SEQVEC = PRESETS["original"]  # SeqVec has the same shape
QUICK = PRESETS["tiny"]
RESIDUES = dict(
    A=8.3, R=5.5, N=4.1, D=5.5, C=1.4, Q=3.9, E=6.7, G=7.1, H=2.3, I=5.9, L=9.7, K=5.8, M=2.4, F=3.9, P=4.7,
    S=6.6, T=5.3, W=1.1, Y=2.9, V=6.9,
)  # fmt: skip
"""Amino acids and their frequency in proteins, in percent."""


def make_sequences(n_sequences: int, mean_length: int, longest: int, seed: int) -> list[list[str]]:
    """Make random sequences of different lengths, and one of length `longest`."""
    random = np.random.default_rng(seed)
    lengths = random.gamma(2.0, mean_length / 2, n_sequences).astype(int).clip(20, longest)
    shares = np.array([*RESIDUES.values()])
    return [
        random.choice([*RESIDUES], length, p=shares / shares.sum()).tolist() for length in (*lengths, longest)
    ]


def write_random_model(folder: Path, quick: bool) -> tuple[Path, Path]:
    """Write options and random weights in the layout of `bilm dump-weights`."""
    Elmo(QUICK if quick else SEQVEC).dump_weights(folder / "weights.hdf5")
    return folder / "options.json", folder / "weights.hdf5"


def embed(embedder: ElmoEmbedder, sequences: list[list[str]]) -> np.ndarray:
    """Embed proteins as float32 (sequences, dim); vectors of residues are not kept."""
    proteins = []
    for layers in embedder.embed_sentences(sequences):
        residues = layers.sum(axis=0)  # (residues, dim)
        proteins.append(residues.mean(axis=0))
    return np.stack(proteins)


def main() -> None:
    """Make sequences and a model, embed, and print time and memory."""
    parser = argparse.ArgumentParser(description="Embed protein sequences with an ELMo over letters.")
    parser.add_argument(
        "--options-file", type=Path, help="options of a model over amino acids, such as SeqVec"
    )
    parser.add_argument("--weight-file", type=Path, help="HDF5 weights of the model")
    parser.add_argument("--sequences", type=int, default=16, help="number of sequences (default 16)")
    parser.add_argument("--mean-length", type=int, default=350, help="their mean length (default 350)")
    parser.add_argument(
        "--longest", type=int, default=5000, help="length of one further sequence (default 5000)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="random weights of a smaller shape, LSTM 256/64")
    args = parser.parse_args()
    if (args.options_file is None) != (args.weight_file is None):
        parser.error("give --options-file and --weight-file together, or neither")
    if args.quick and args.options_file:
        parser.error("--quick goes with random weights only")
    if min(args.sequences, args.mean_length) < 1 or args.longest < 20 or args.seed < 0:
        parser.error("--sequences and --mean-length must be at least 1, --longest 20, --seed 0")

    with tempfile.TemporaryDirectory() as folder:
        if args.options_file is None:
            print("random weights: the vectors mean nothing")
            files = write_random_model(Path(folder), args.quick)
        else:
            files = args.options_file, args.weight_file
        embedder = ElmoEmbedder(*files)
    sequences = make_sequences(args.sequences, args.mean_length, args.longest, args.seed)
    n_residues = sum(map(len, sequences))
    start = time.perf_counter()
    proteins = embed(embedder, sequences)
    seconds = time.perf_counter() - start
    print(f"{len(sequences)} sequences, {n_residues:,} residues, the longest of {args.longest:,}")
    print(f"vectors of proteins {proteins.shape}")
    print(f"{n_residues / seconds:,.0f} residues/s, compilation included")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"memory of the process at most {peak / 1e9:.2f} GB")


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
