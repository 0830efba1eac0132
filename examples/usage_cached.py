"""Cache ELMo layers: compute all layers of a data set once, write them to a file, and learn their mix.

    python examples/usage_cached.py

Use this to train many epochs on the same sentences with a frozen biLM: the training loop runs only the mix,
not the biLM. `bilm embed text.txt layers.hdf5` writes the same file. Without flags, the example uses a model
and a text of this repository's tests, and a toy task: recognise questions from the vectors of their words.
"""

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
    """Read layers (sentences, layers, words, dim), padded with zeros, and the numbers of words."""
    with h5py.File(path) as file:
        sentences = [file[str(line)][...] for line in range(n_sentences)]
    lengths = np.array([layers.shape[1] for layers in sentences])
    n_layers, _, dim = sentences[0].shape
    padded = np.zeros((n_sentences, n_layers, lengths.max(), dim), np.float32)
    for row, layers in enumerate(sentences):
        padded[row, :, : layers.shape[1]] = layers
    return padded, lengths


def main() -> None:
    """Write the file, read it and train on it."""
    parser = argparse.ArgumentParser(description="Weighted ELMo layers from a file of embeddings.")
    parser.add_argument("--options-file", default=TOY / "options.json", help="options of the biLM")
    parser.add_argument("--weight-file", default=TOY / "weights.hdf5", help="HDF5 weights of the biLM")
    parser.add_argument("--vocab-file", default=TOY / "vocab.txt", help="vocabulary of the biLM")
    parser.add_argument("--text", default=TOY / "heldout.txt", help="one tokenised sentence per line")
    args = parser.parse_args()
    sentences = [line.split() for line in read_lines(args.text)]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.hdf5"
        files = (args.vocab_file, args.text, args.options_file, args.weight_file, path)
        dump_bilm_embeddings(*files, stateful=False)  # each sentence by itself, on every backend
        layers, lengths = read_padded(path, len(sentences))
    is_question = np.array([words[-1:] == ["?"] for words in sentences], np.float32)
    print("layers", layers.shape, "words", lengths.sum())

    inputs = keras.Input((layers.shape[1], None, layers.shape[3]))
    mix = ScalarMix(l2_coef=0.001, name="mix")
    total = keras.ops.sum(mix(inputs), axis=1)  # padding is zero
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(total))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    losses = model.fit(layers, is_question, epochs=20, verbose=0).history["loss"]
    print(f"loss {losses[0]:.3f}, after 20 epochs {losses[-1]:.3f}")
    shares = keras.ops.convert_to_numpy(keras.ops.softmax(mix.layer_weights))
    print("shares of the layers", shares.round(3))


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
