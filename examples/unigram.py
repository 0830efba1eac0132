"""Compute the perplexity of an add-one unigram model, a baseline for language models.

    python examples/unigram.py --train-prefix 'train/*' --heldout heldout.txt --vocab-file vocab.txt

Scores the same targets as ``bilm test``: every word, ``<UNK>`` for words outside the vocabulary, and one
``</S>`` per sentence; blank lines are skipped. The model spreads its probability over the vocabulary
without ``<S>``, which is never predicted.
"""

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np

from bilm.data.corpus import count_corpus
from bilm.errors import BilmError
from bilm.io.shards import find_files
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.vocabulary.vocabulary_file import form_of_words


def unigram_perplexity(train_counts: np.ndarray, heldout_counts: np.ndarray, bos: int) -> tuple[float, int]:
    """Compute the perplexity of `heldout_counts` under the add-one model of `train_counts`.

    Args:
        train_counts: int (vocabulary size,), occurrences of each word id.
        heldout_counts: int (vocabulary size,), the same for the text to score.
        bos: id of the sentence start, which is never predicted.

    Returns:
        The perplexity and the number of scored tokens.
    """
    train, heldout = np.delete(train_counts, bos), np.delete(heldout_counts, bos)
    log_probabilities = np.log(train + 1) - math.log(train.sum() + len(train))
    n_tokens = int(heldout.sum())
    return math.exp(-(heldout @ log_probabilities) / n_tokens), n_tokens


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the perplexity and return the exit status."""
    parser = argparse.ArgumentParser(description="Heldout perplexity of an add-one unigram model.")
    parser.add_argument(
        "--train-prefix", required=True, nargs="+", help="files, directories or globs to count"
    )
    parser.add_argument("--heldout", required=True, nargs="+", help="files, directories or globs to score")
    parser.add_argument("--vocab-file", required=True, help="vocabulary, one word per line")
    args = parser.parse_args(arguments)
    try:
        vocabulary = load_vocabulary(args.vocab_file)
        vocabulary.unicode_form = form_of_words(vocabulary.words)  # as of a new model
        train = count_corpus(find_files(args.train_prefix), vocabulary)
        heldout = count_corpus(find_files(args.heldout), vocabulary)
    except BilmError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    perplexity, n_tokens = unigram_perplexity(train.word_counts, heldout.word_counts, vocabulary.bos)
    print(f"unigram perplexity (add-one): {perplexity:.2f} over {n_tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
