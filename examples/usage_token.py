"""Compute weighted ELMo layers from word ids: encode the words of a vocabulary once, into a file.

    python examples/usage_token.py

Use this for a text whose words are known in advance. The character convolutions encode each word of the
vocabulary once; each batch then needs only a look-up and the LSTM layers. For words of the vocabulary the
vectors equal the results of `usage_character.py`; other words are <UNK>. Without flags, the example uses a
model and a text of this repository's tests, and collects the vocabulary from the text.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from bilm import Batcher, BidirectionalLanguageModel, TokenBatcher, dump_token_embeddings, weight_layers
from bilm.errors import BilmError
from bilm.io.lines import read_lines
from bilm.options.parameters import normaliser

TOY = Path(__file__).resolve().parent.parent / "tests" / "golden" / "char"


def write_vocabulary(sentences: list[list[str]], path: Path) -> None:
    """Write the vocabulary of sentences, one word per line, special words first."""
    words = dict.fromkeys(["<S>", "</S>", "<UNK>", *(word for words in sentences for word in words)])
    path.write_text("\n".join(words) + "\n", encoding="utf-8")


def main() -> None:
    """Embed the text both ways and compare."""
    parser = argparse.ArgumentParser(description="Weighted ELMo layers from word ids.")
    parser.add_argument("--options-file", default=TOY / "options.json", help="options of the biLM")
    parser.add_argument("--weight-file", default=TOY / "weights.hdf5", help="HDF5 weights of the biLM")
    parser.add_argument("--text", default=TOY / "heldout.txt", help="one tokenised sentence per line")
    args = parser.parse_args()
    by_characters = BidirectionalLanguageModel(args.options_file, args.weight_file)
    in_form = normaliser(by_characters.options.unicode_form)  # in which the model takes words
    sentences = [in_form(line).split() for line in read_lines(args.text)]

    with tempfile.TemporaryDirectory() as folder:
        vocabulary, vectors = Path(folder) / "vocab.txt", Path(folder) / "words.hdf5"
        write_vocabulary(sentences, vocabulary)
        dump_token_embeddings(vocabulary, args.options_file, args.weight_file, vectors)
        bilm = BidirectionalLanguageModel(
            args.options_file, args.weight_file, use_character_inputs=False, embedding_weight_file=vectors
        )
        ids = TokenBatcher(vocabulary).batch_sentences(sentences[:8])
    output = bilm(ids)
    mix = weight_layers("at_input", output, l2_coef=0.001)
    print("word ids", ids.shape)
    print("layers", output.lm_embeddings.shape)
    print("at the input", mix.weighted_op.shape)

    width = by_characters.options.char_cnn.max_characters_per_token
    same = by_characters(Batcher(None, width).batch_sentences(sentences[:8]))
    difference = np.abs(same.lm_embeddings - output.lm_embeddings).max()
    print(f"largest difference from the layers by characters: {difference:.1e}")


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
