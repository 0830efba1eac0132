"""bilm-tf's functions that write vectors, called as its own examples call them."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from bilm.data.batcher import Batcher, TokenBatcher
from bilm.embedding.embedder import ElmoEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.errors import VocabularyError
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from tests.corpora import write
from tests.helpers import run
from tests.models.test_bidirectional_lm import write_model

SENTENCES = [["Pretrained", "biLMs", "compute"], ["the", "cat"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of a model over characters that compiles soon."""
    shape = {"lstm": {"n_layers": 1}, "char_cnn": {"max_characters_per_token": 50}}
    return write_model(tmp_path_factory.mktemp("small"), **shape)


@pytest.fixture
def vocab_file(tmp_path):
    """As usage_cached.py makes it: the words of the text and the sentence marks, without <UNK>."""
    words = {"<S>", "</S>"}.union(*SENTENCES)
    return write(tmp_path / "vocab_small.txt", "\n".join(words))


def test_cached_vectors_without_unk(files, vocab_file, tmp_path):
    dump_token_embeddings(vocab_file, *files, tmp_path / "tokens.hdf5")
    batcher = TokenBatcher(vocab_file)
    model = BidirectionalLanguageModel(
        *files, use_character_inputs=False, embedding_weight_file=tmp_path / "tokens.hdf5"
    )
    cached = model(batcher.batch_sentences(SENTENCES)).lm_embeddings
    whole = BidirectionalLanguageModel(*files)(
        Batcher(vocab_file, 50).batch_sentences(SENTENCES)
    ).lm_embeddings
    np.testing.assert_allclose(cached, whole, atol=1e-5)
    with pytest.raises(
        VocabularyError, match="sentence 0: 'dog' is not in the vocabulary, which has no <UNK>"
    ):
        batcher.batch_sentences([["dog"]])


def test_vectors_of_a_text_without_unk(files, vocab_file, tmp_path):
    """A model over characters reads words that are in no vocabulary."""
    text = write(tmp_path / "text", "the cat\nthe dog\n")
    dump_bilm_embeddings(vocab_file, text, *files, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["0"].shape == file["1"].shape == (2, 2, 8)


def test_a_model_over_words_without_unk(tmp_path):
    files = write_model(tmp_path, n_words=4, char_cnn=None, lstm={"n_layers": 1})
    vocab_file = write(tmp_path / "vocab", "<S>\n</S>\nthe\ncat\n")
    known = write(tmp_path / "known", "the cat\n")
    dump_bilm_embeddings(vocab_file, known, *files, tmp_path / "out.hdf5")
    embedder = ElmoEmbedder(*files, vocab_file)
    with h5py.File(tmp_path / "out.hdf5") as file:
        np.testing.assert_allclose(file["0"][()], embedder.embed_sentence(["the", "cat"]), atol=1e-6)
    for _ in range(2):
        with pytest.raises(VocabularyError, match="'dog' is not in the vocabulary, which has no <UNK>"):
            embedder.embed_sentence(["the", "dog"])


@pytest.mark.slow
def test_a_saved_model_without_unk_fails_at_an_unknown_word(tmp_path):
    options_file, weight_file = write_model(tmp_path, n_words=4, char_cnn=None)
    vocab_file = write(tmp_path / "vocab", "<S>\n</S>\nthe\ncat\n")
    run(
        *("export", "--saved-model", tmp_path / "elmo", "--vocab-file", vocab_file),
        *("--options-file", options_file, "--weight-file", weight_file),
    )
    default = tf.saved_model.load(str(tmp_path / "elmo")).signatures["default"]
    assert default(tf.constant(["the cat", "the"]))["elmo"].shape == (2, 2, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="which has no <UNK>.*dog"):
        default(tf.constant(["the cat", "dog"]))
