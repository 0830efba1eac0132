"""Compute weighted ELMo layers of sentences from characters.

    python examples/usage_character.py

Each batch runs the character convolutions and the LSTM layers. This is the slowest of the three ways, and the
only one for words that are not known in advance: `usage_token.py` looks the words up instead, and
`usage_cached.py` reads all layers from a file. Without --options-file and --weight-file, the example uses a
small, hardly trained model of this repository's tests.
"""

import argparse
import sys
from pathlib import Path

from bilm import Batcher, BidirectionalLanguageModel, weight_layers
from bilm.errors import BilmError
from bilm.options.parameters import normaliser

TOY = Path(__file__).resolve().parent.parent / "tests" / "golden" / "char"
QUESTIONS = [["who", "sold", "the", "violin", "?"], ["what", "?"]]
CONTEXTS = [
    ["an", "owl", "sold", "her", "violin", "."],
    ["the", "café", "owner", "counted", "the", "clock", "again", "."],
]


def main() -> None:
    """Embed questions and texts that answer them."""
    parser = argparse.ArgumentParser(description="Weighted ELMo layers from characters.")
    parser.add_argument("--options-file", default=TOY / "options.json", help="options of the biLM")
    parser.add_argument("--weight-file", default=TOY / "weights.hdf5", help="HDF5 weights of the biLM")
    args = parser.parse_args()

    bilm = BidirectionalLanguageModel(args.options_file, args.weight_file)
    # Characters need no vocabulary, hence None. The ids include sentence marks, and are padded with 0.
    batcher = Batcher(None, bilm.options.char_cnn.max_characters_per_token)
    in_form = normaliser(bilm.options.unicode_form)  # in which the model takes words
    ids_of_questions, ids_of_contexts = (
        batcher.batch_sentences([[*map(in_form, words)] for words in sentences])
        for sentences in (QUESTIONS, CONTEXTS)
    )
    questions, contexts = bilm(ids_of_questions), bilm(ids_of_contexts)
    print("characters of the questions", ids_of_questions.shape)
    print("layers of the questions", questions.lm_embeddings.shape)

    # One mix for both texts, for the input of a model. Training changes its two weights.
    at_input = weight_layers("at_input", questions, l2_coef=0.001)
    contexts_at_input = at_input.layer(contexts.lm_embeddings, mask=contexts.mask)
    # Another mix for the model's output, and the top layer alone instead of a mix.
    at_output = weight_layers("at_output", questions, l2_coef=0.001)
    top = weight_layers("top", questions, use_top_only=True)

    print("questions at the input", at_input.weighted_op.shape)
    print("contexts at the input", contexts_at_input.shape)
    print("questions at the output", at_output.weighted_op.shape)
    print("top layer of the questions", top.weighted_op.shape)
    print("trainable", [weight.path for weight in at_input.layer.trainable_weights])


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
