"""Small corpora and vocabularies, and batches as strings, for the tests of the input side."""

import os

import numpy as np
from hypothesis import strategies as st

from bilm.data.pipeline import Batch, training_batches
from bilm.data.stream import Order
from bilm.options import CharCNNOptions, LSTMOptions, Options
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocabulary
from tests.helpers import GOLDEN

MARKS = ["<S>", "</S>", "<UNK>"]
WORDS = Vocabulary.from_words([*MARKS, "a", "b", "c"])
CHARACTERS = UnicodeCharsVocabulary.from_words(WORDS.words, 12)

# Words of several lengths, known and not.
sentences_of_words = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "éé", "long-unknown-word"]), max_size=12), max_size=12
)


def golden(variant):
    folder = GOLDEN / variant
    vocab = load_vocabulary(folder / "vocab.txt", None if variant == "word-shared" else 50)
    return folder / "train.txt", vocab, np.load(folder / "batches.npz")


def character_cnn(vocab, max_filter_width):
    """Options of a character encoder of which only the widths matter; None for a word-level vocabulary."""
    width = getattr(vocab, "max_word_length", None)
    return width and CharCNNOptions(((max_filter_width, 1),), max_characters_per_token=width)


def training(
    files, vocab, *, n_replicas=1, start=None, part=(0, 1), shuffle=True, max_filter_width=1, **arguments
):
    """`training_batches` of a shape and an order."""
    names = "seed", "shuffle_buffer", "passage_tokens"
    order = {name: arguments.pop(name) for name in names if name in arguments}
    order = Order(shuffle, part=part[0], n_parts=part[1], **order)
    options = Options(LSTMOptions(1, 1), character_cnn(vocab, max_filter_width), **arguments)
    return training_batches(files, vocab, options, order, n_replicas=n_replicas, start=start)


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def pipe(data):
    """A pipe with a few bytes in it, by the name that a shell's <(...) has."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return f"/dev/fd/{reading}"


def expand(batch: Batch) -> np.ndarray:
    """Full rows of characters of every token, (directions, rows, steps, longest width)."""
    widest = batch.type_characters[-1].shape[1]
    rows = [
        np.pad(part, ((0, 0), (0, widest - part.shape[1])), constant_values=260)
        for part in batch.type_characters
    ]
    return np.concatenate(rows)[batch.token_types].transpose(0, 2, 1, 3)


def known(words):
    return [word if word in WORDS.words else "<UNK>" for word in words]
