"""The biLM at inference: agreement with bilm-tf and with itself."""

from functools import cache

import h5py
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend import AutocastScope

from bilm.data.batcher import Batcher, TokenBatcher
from bilm.embedding.embedder import dump_token_embeddings
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.layers.scalar_mix import weight_layers
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.weights.hdf5_file import write_hdf5
from bilm.weights.names import weight_names
from tests.helpers import GOLDEN, small_options, write_json

VARIANTS = sorted(path.parent.name for path in GOLDEN.glob("*/embeddings.hdf5"))


def sentences_of(variant, n=24):
    lines = (GOLDEN / variant / "heldout.txt").read_text().splitlines()
    return [line.split() for line in lines[:n]]


@cache
def open_model(variant, **arguments):
    return BidirectionalLanguageModel(
        GOLDEN / variant / "options.json", GOLDEN / variant / "weights.hdf5", **arguments
    )


def model_of(variant, **arguments):
    """A model of the golden files, opened and compiled once; its state is zero."""
    model = open_model(variant, **arguments)
    if model.stateful:
        model.reset_states()
    return model


def golden(variant, group):
    with h5py.File(GOLDEN / variant / "embeddings.hdf5") as file:
        return [file[f"{group}/{i}"][()] for i in range(24)]


def per_sentence(output):
    return [row[:, :n].numpy() for row, n in zip(output.lm_embeddings, output.lengths, strict=True)]


def assert_all_close(found, expected, atol):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


def write_model(directory, n_words=30, **changes):
    """Options and weights of a random model, as `bilm dump-weights` writes them."""
    options = Options.from_json(small_options(n_tokens_vocab=n_words, **changes))
    model = LanguageModel(options)
    arrays = {name: variable.numpy() for name, variable in model.named_weights().items()}
    names = [name for name in weight_names(options) if not name.is_softmax]
    write_hdf5(directory / "weights.hdf5", arrays, names)
    write_json(directory / "options.json", options.to_inference_json())
    return directory / "options.json", directory / "weights.hdf5"


# --- agreement with bilm-tf -------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_stateless_model_equals_golden(variant):
    model, batcher = model_of(variant), Batcher(None, 50)
    output = model(batcher.batch_sentences(sentences_of(variant)))
    assert_all_close(per_sentence(output), golden(variant, "stateless"), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_stateful_model_equals_golden(variant):
    model, batcher = model_of(variant, stateful=True, max_batch_size=8), Batcher(None, 50)
    sentences = sentences_of(variant)

    for _ in range(2):
        model.reset_states()
        batches = [batcher.batch_sentences(sentences[start : start + 4]) for start in range(0, 24, 4)]
        found = [vectors for ids in batches for vectors in per_sentence(model(ids))]
        assert_all_close(found, golden(variant, "stateful"), 1e-5)


def test_carried_states_stay_float32_in_a_layer_of_mixed_precision():
    ids, found = Batcher(None, 50).batch_sentences(sentences_of("char")[:2]), []
    for dtype in (None, "float16"):
        model = open_model.__wrapped__("char", stateful=True)  # compiled in the scope
        with AutocastScope(dtype):
            found.append([model(ids).lm_embeddings.numpy() for _ in range(2)][1])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weight_layers_equals_golden(variant):
    folder = GOLDEN / variant
    sentences = sentences_of(variant)
    output = model_of(variant)(Batcher(None, 50).batch_sentences(sentences))
    mixed = weight_layers("input", output, l2_coef=0.5)
    with h5py.File(folder / "embeddings.hdf5") as file:
        for i, words in enumerate(sentences):
            expected = file[f"weighted/{i}"]
            np.testing.assert_allclose(mixed["weighted_op"][i, : len(words)], expected, atol=1e-5, rtol=0)
    assert mixed["regularization_op"] == 0  # at the initial weights


# --- agreement with itself --------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_dumped_vectors_equal_those_of_bilm_tf(variant, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.models.sentence_encoder._WORDS_AT_ONCE", 30)
    folder = GOLDEN / variant
    known = set((folder / "vocab.txt").read_text().split())
    sentences = [[word for word in words if word in known] for words in sentences_of(variant)]
    files = (folder / "options.json", folder / "weights.hdf5")
    dump_token_embeddings(folder / "vocab.txt", *files, tmp_path / "vectors.hdf5")
    with h5py.File(tmp_path / "vectors.hdf5") as file, h5py.File(folder / "token_embeddings.hdf5") as dump:
        assert list(file) == ["embedding"] and file["embedding"].dtype == np.float32
        np.testing.assert_allclose(file["embedding"][()], dump["embedding"][()], atol=1e-5, rtol=0)
    by_word = BidirectionalLanguageModel(*files, False, tmp_path / "vectors.hdf5")
    words = by_word(TokenBatcher(folder / "vocab.txt").batch_sentences(sentences))
    characters = model_of(variant)(Batcher(folder / "vocab.txt", 50).batch_sentences(sentences))
    for name in words:
        np.testing.assert_allclose(words[name], characters[name], atol=1e-6, err_msg=name)


def test_output_has_names_and_zero_padding():
    ids = Batcher(None, 50).batch_sentences([["the"], [], ["the", "cat", "sat"]])
    output = model_of("char")(ids)
    assert list(output) == ["lm_embeddings", "lengths", "token_embeddings", "mask"]
    assert output["lm_embeddings"] is output.lm_embeddings
    assert output.lm_embeddings.shape == (3, 3, 3, 24)
    assert output.token_embeddings.shape == (3, 5, 12)
    assert output.lengths.numpy().tolist() == [1, 0, 3]
    assert output.mask.numpy().tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert not np.any(output.lm_embeddings[0, :, 1:]) and not np.any(output.lm_embeddings[1])
    np.testing.assert_array_equal(output.lm_embeddings[:, 0, :, 12:], output.lm_embeddings[:, 0, :, :12])
    np.testing.assert_array_equal(output.lm_embeddings[2, 0, :, :12], output.token_embeddings[2, 1:4])
    with pytest.raises(KeyError, match="top; there are lm_embeddings"):
        output["top"]


def test_rows_beyond_batch_keep_state(tmp_path):
    files = write_model(tmp_path, char_cnn=None, lstm={"n_layers": 1})
    model = BidirectionalLanguageModel(*files, False, stateful=True, max_batch_size=8)
    sentences = np.array([[1, 3 + 2 * i, 4 + 2 * i, 2] for i in range(6)])
    model(sentences[:3])
    model(sentences[3:4])
    both = model(sentences[4:6])
    model.reset_states()
    model(sentences[1:2])
    assert_all_close(per_sentence(both)[1:], per_sentence(model(sentences[5:6])), 1e-6)


# --- other models -----------------------------------------------------------------------------------


OTHERS = {
    "words": {"char_cnn": None},
    "forward": {"bidirectional": False},
    "plain": {"lstm": {"dim": 4, "projection_dim": 4, "n_layers": 1}, "char_cnn": {"n_highway": 0}},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_other_architectures_equal_embedder(changes, tmp_path):
    """Layers are those the training model computes, in windows and without padding."""
    options, weights = write_model(tmp_path, **changes)
    by_word = changes.get("char_cnn", ()) is None
    model = BidirectionalLanguageModel(options, weights, use_character_inputs=not by_word)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(27))]))
    batcher = TokenBatcher(vocabulary) if by_word else Batcher(vocabulary, 20)
    ids = batcher.batch_sentences([["w1", "w2", "unseen"], ["w3"]])
    output = model(ids)
    assert output.lm_embeddings.shape == (2, model.n_layers, 3, model.dim)
    encoder = model.encoder
    for row, length in enumerate([5, 3]):
        own = tf.constant(ids[row : row + 1, :length] - 1, tf.int32)
        words = tf.gather(encoder.encode_types(), own) if by_word else encoder.char_cnn(own)
        words = tf.transpose(words, [1, 0, 2])
        for direction, layers in enumerate([slice(0, 4), slice(4, 8)][: model.options.n_directions]):
            given = words[::-1] if direction else words
            expected, _ = encoder.run_direction(direction, given, encoder.zero_states(1)[direction])
            for i, layer in enumerate(expected, start=1):
                layer = layer[::-1] if direction else layer
                np.testing.assert_allclose(
                    output.lm_embeddings[row, i, : length - 2, layers], layer[1:-1, 0], atol=1e-6
                )


@pytest.mark.slow
def test_many_words_are_encoded_in_parts(monkeypatch):
    ids = Batcher(None, 50).batch_sentences(sentences_of("char"))
    expected = model_of("char")(ids).token_embeddings
    monkeypatch.setattr("bilm.backend.settings.WORDS_AT_ONCE", 5)
    np.testing.assert_allclose(open_model.__wrapped__("char")(ids).token_embeddings, expected, atol=1e-6)


# --- what is refused --------------------------------------------------------------------------------


def test_arguments_contradicting_options_are_refused(tmp_path):
    options, weights = write_model(tmp_path)
    for arguments, message in (
        ({"use_character_inputs": False}, "embedding_weight_file: missing"),
        ({"embedding_weight_file": weights}, "is for word ids"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"use_character_inputs": "no"}, "`use_character_inputs` is 'no'"),
        ({"stateful": "no"}, "`stateful` is 'no'"),
    ):
        with pytest.raises(OptionsError, match=message):
            BidirectionalLanguageModel(options, weights, **arguments)
    with pytest.raises(WeightsError, match="has no array 'embedding'"):
        BidirectionalLanguageModel(options, weights, False, weights)
    options, weights = write_model(tmp_path, char_cnn=None)
    with pytest.raises(OptionsError, match="not characters; give False, and ids of a Tok"):
        BidirectionalLanguageModel(options, weights)


def test_word_level_model_takes_word_ids(tmp_path):
    """The largest id is that of the file, of vectors or of the model."""
    options, weights = write_model(tmp_path, char_cnn=None)
    model = BidirectionalLanguageModel(options, weights, use_character_inputs=False)
    with pytest.raises(DataError, match="0 .padding. to 30, got 1 to 31"):
        model([[1, 31, 2]])


def test_weight_layers_refuses_taken_name():
    model = model_of("char")
    first, second = (model(Batcher(None, 50).batch_sentences([[word]])) for word in ("the", "cat"))
    mixed = weight_layers("again", first, do_layer_norm=True)
    with pytest.raises(OptionsError, match="'again' already names a mix"):
        weight_layers("again", second)
    expected = mixed.layer(second.lm_embeddings, mask=second.mask)
    np.testing.assert_array_equal(mixed.layer(second), expected)
    np.testing.assert_array_equal(mixed.layer(dict(second)), expected)


def test_more_rows_than_states_are_refused():
    model = model_of("char", stateful=True, max_batch_size=2)
    with pytest.raises(DataError, match="3 rows, but the state of only 2 is carried"):
        model(Batcher(None, 50).batch_sentences([["a"]] * 3))
