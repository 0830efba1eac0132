import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data import stream as sentences_module
from bilm.data.stream import encode_sentences, join_sentences
from tests.corpora import CHARACTERS, WORDS, known, sentences_of_words


def encode(sentences, vocab, *limits):
    return encode_sentences(map(" ".join, sentences), vocab, *limits)


def read(sentences, vocab):
    assert sentences.ids.dtype == np.int32
    ends = sentences.ends - 1
    assert (sentences.ids[ends] == vocab.eos).all()
    return [sentences.words(k, vocab) for k in range(len(sentences))]


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 30))
def test_encoding(sentences, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences_module, "_ENCODE_TOKENS", chunk)
        over_characters, over_words = encode(sentences, CHARACTERS), encode(sentences, WORDS)
    assert read(over_characters, CHARACTERS) == sentences
    unknown = [word for words in sentences for word in words if word not in WORDS.words]
    assert over_characters.oov == tuple(dict.fromkeys(unknown))
    assert read(over_words, WORDS) == [known(words) for words in sentences]
    assert over_words.oov == ()
    assert over_words.lengths.tolist() == [len(words) + 1 for words in sentences]


@settings(deadline=None)
@given(st.lists(sentences_of_words, min_size=1, max_size=4), st.data())
def test_packing_and_joining_keep_the_words(parts, data):
    chosen = []
    for part in parts:
        which = data.draw(st.lists(st.integers(0, len(part) - 1), unique=True) if part else st.just([]))
        packed = encode(part, CHARACTERS).select(np.array(which, int)).packed(CHARACTERS)
        expected = [part[k] for k in which]
        assert read(packed, CHARACTERS) == expected
        unknown = {word for words in expected for word in words if word not in WORDS.words}
        assert sorted(packed.oov) == sorted(unknown), "no word of the others is kept"
        chosen.append((packed, expected))
    joined = join_sentences([packed for packed, _ in chosen], CHARACTERS)
    assert read(joined, CHARACTERS) == [words for _, expected in chosen for words in expected]
    assert len(set(joined.oov)) == len(joined.oov)
