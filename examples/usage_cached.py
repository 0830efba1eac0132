"""ELMo from a file: every layer of a fixed data set, computed once, and a mix that is learned over them.

    python examples/usage_cached.py

For training on the same sentences again and again with a frozen biLM: nothing of the biLM is left in the
loop, only the mix. The file is what `bilm embed text.txt layers.hdf5` writes. Without flags it takes a
model and a text of this repository's tests, and what is learned, to tell questions by their words' vectors,
is a toy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import h5py
import keras
import numpy as np

from bilm import ScalarMix, dump_bilm_embeddings
from bilm.errors import BilmError
from bilm.io.lines import read_lines

TOY = Path(__file__).resolve().parent.parent / "tests" / "golden" / "char"


def read_padded(path: Path, n_sentences: int) -> tuple[np.ndarray, np.ndarray]:
    """Layers (sentences, layers, words, dim) with zeros after the last word, and numbers of words."""
    with h5py.File(path) as file:
        sentences = [file[str(line)][...] for line in range(n_sentences)]
    lengths = np.array([layers.shape[1] for layers in sentences])
    n_layers, _, dim = sentences[0].shape
    padded = np.zeros((n_sentences, n_layers, lengths.max(), dim), np.float32)
    for row, layers in enumerate(sentences):
        padded[row, :, : layers.shape[1]] = layers
    return padded, lengths


def main() -> None:
    """Write the file, read it again and learn from it."""
    parser = argparse.ArgumentParser(description="Weighted ELMo layers from a file of embeddings.")
    parser.add_argument("--options-file", default=TOY / "options.json", help="of the biLM")
    parser.add_argument("--weight-file", default=TOY / "weights.hdf5", help="of the biLM, HDF5")
    parser.add_argument("--vocab-file", default=TOY / "vocab.txt", help="of the biLM")
    parser.add_argument("--text", default=TOY / "heldout.txt", help="one tokenised sentence per line")
    args = parser.parse_args()
    sentences = [line.split() for line in read_lines(args.text)]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.hdf5"
        dump_bilm_embeddings(args.vocab_file, args.text, args.options_file, args.weight_file, path)
        layers, lengths = read_padded(path, len(sentences))
    is_question = np.array([words[-1:] == ["?"] for words in sentences], np.float32)
    print("layers", layers.shape, "words", lengths.sum())

    inputs = keras.Input(layers.shape[1:])
    mix = ScalarMix(l2_coef=0.001, name="mix")
    mean = keras.layers.GlobalAveragePooling1D()(mix(inputs))  # padding is zero and only scales it
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(mean))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    losses = model.fit(layers, is_question, epochs=20, verbose=0).history["loss"]
    print(f"loss {losses[0]:.3f}, after 20 epochs {losses[-1]:.3f}")
    print("shares of the layers", keras.ops.softmax(mix.layer_weights).numpy().round(3))


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
