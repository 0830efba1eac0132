import h5py
import numpy as np
import pytest

from bilm.data.batcher import Batcher, TokenBatcher, batch_to_ids
from bilm.errors import DataError, VocabularyError
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from tests.helpers import CHAR, HELDOUT, VOCAB

WORDS = ["the", ".", "\u0100t", "<S>", "</S>", "<UNK>"]
SENTENCES = [["the", "thhhhh", "."], ["one"], []]


def test_golden_character_ids(tmp_path):
    with h5py.File(CHAR / "embeddings.hdf5") as file:
        expected = file["char_ids"][...]
    lines = HELDOUT.read_text(encoding="utf-8").splitlines()
    sentences = [line.split() for line in lines[:4]]
    loaded = UnicodeCharsVocabulary(VOCAB, 50)
    bare = tmp_path / "bare.txt"
    bare.write_text("the\n\nthe\nowl\n", encoding="utf-8")  # bilm-tf does not look at its lines
    for vocab in (VOCAB, loaded, Vocabulary(bare), bare, None):
        ids = Batcher(vocab, 50).batch_sentences(sentences)
        assert ids.dtype == np.int64
        np.testing.assert_array_equal(ids, expected)


def test_word_ids():
    ids = TokenBatcher(Vocabulary.from_words(WORDS)).batch_sentences(SENTENCES)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, [[4, 1, 6, 2, 5], [4, 6, 5, 0, 0], [4, 5, 0, 0, 0]])


def test_vocabulary_without_unk_encodes_known_words():
    batcher = TokenBatcher(Vocabulary.from_words(["a", "</S>", "<S>", "b"]))
    assert batcher.batch_sentences([["b", "a"], []]).tolist() == [[3, 4, 1, 2], [3, 2, 0, 0]]
    with pytest.raises(VocabularyError, match="'c' is not in the vocabulary, which has no <UNK>"):
        batcher.batch_sentences([["a"], ["b", "c"]])


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([["the"], ["a", b"cat"]], "sentence 1, word 1 is of type bytes, not a string: b'cat'"),
        ([["the"], "the cat"], "sentence 1 is a string, not a list of words: 'the cat'"),
        ([["the"], 5], "sentence 1 is of type int, not a list of words: 5"),
        ([["the"], {"words": ["cat"]}], "sentence 1 is of type dict, not a list of words"),
        ([{"the"}], "sentence 0 is of type set, not a list of words"),
        ("the cat", "sentences must be lists of words, in a list, got str: 'the cat'"),
        (5, "sentences must be lists of words, in a list, got int: 5"),
        ({"the"}, "got set: {'the'}"),
        ({"the": 1}, "got dict: {'the': 1}"),
        ([], "no sentences"),
    ],
)
def test_other_than_words_is_refused(sentences, message):
    for batcher in (Batcher(None, 5), TokenBatcher(Vocabulary.from_words(WORDS))):
        with pytest.raises(DataError, match=message):
            batcher.batch_sentences(sentences)


def test_sentences_may_be_iterators():
    expected = batch_to_ids(SENTENCES)
    for sentences in (iter(SENTENCES), map(iter, SENTENCES), [np.array(words, str) for words in SENTENCES]):
        np.testing.assert_array_equal(batch_to_ids(sentences), expected)


def test_wrong_vocabulary_is_refused():
    with pytest.raises(VocabularyError, match="5 characters per word, not 6"):
        Batcher(UnicodeCharsVocabulary.from_words(WORDS, 5), 6)
    with pytest.raises(VocabularyError, match="lacks <S> or </S>"):
        TokenBatcher(Vocabulary.from_words(["<UNK>", "</S>"]))
