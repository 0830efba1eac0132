"""ELMo inside Keras models."""

import copy
import importlib
import json
import os
import weakref
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import bilm.allennlp
from bilm.data.batcher import Batcher, TokenBatcher, batch_to_ids
from bilm.embedding.elmo_layer import Elmo
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BilmError, DataError, OptionsError
from bilm.io.lines import WHITE_SPACE
from bilm.layers.scalar_mix import ScalarMix, weight_layers
from bilm.layers.sentence_vectorizer import SentenceVectorizer, split_sentences
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from tests.helpers import FILES, VOCAB
from tests.models.test_bidirectional_lm import golden, sentences_of, write_model


def test_initial_mix_is_mean_of_layers():
    found = Elmo(*FILES)(batch_to_ids(sentences_of("char")))
    for row, layers in zip(found, golden("char", "stateless"), strict=True):
        np.testing.assert_allclose(row[: layers.shape[1]], layers.mean(axis=0), atol=1e-5)


def test_vectorizer_equals_batch_to_ids():
    sentences = [["The", "naïve", "<S>", "x" * 60], [], ["日本語" * 17, "</S>", "a"]]
    ids = SentenceVectorizer()(tf.constant([" ".join(words) for words in sentences]))
    np.testing.assert_array_equal(ids, batch_to_ids(sentences))
    short = SentenceVectorizer(max_characters=5)(tf.constant(["abcdef a"]))
    assert short.numpy().tolist() == [[[259, 98, 99, 100, 260], [259, 98, 260, 261, 261]]]


def test_vectorizer_begins_a_sequential_model(files):
    model = keras.Sequential([SentenceVectorizer(), Elmo(*files)])
    assert model(tf.constant(["Time flies", "Hello"])).shape[:2] == (2, 2)


def test_vectorizer_splits_as_python():
    texts = [f"{c}the{c}{c}naïve{c}" for c in WHITE_SPACE] + ["", " ", "a\0b\ufeff\u200bc", WHITE_SPACE]
    found = SentenceVectorizer()(tf.constant(texts))
    np.testing.assert_array_equal(found, batch_to_ids([text.split() for text in texts]))
    words, lengths = split_sentences(tf.constant([b"\xff\x85 \xc2\xa0 \xc2"]))  # no text, and yet kept
    assert words.numpy().tolist() == [[b"\xff\x85", b"\xc2"]] and lengths.numpy().tolist() == [2]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of a model over characters with one layer in one direction, which Keras compiles soon."""
    return write_model(
        tmp_path_factory.mktemp("small"),
        lstm={"n_layers": 1},
        char_cnn={"max_characters_per_token": 50, "filters": [[1, 4]], "n_highway": 0},
        bidirectional=False,
    )


class Made(keras.layers.Layer):
    """A layer that makes its biLM when it is built, as most wrappers of ELMo do."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def build(self, input_shape):
        self.elmo = self.make()

    def call(self, ids):
        return self.elmo(ids)


class Subclass(keras.Model):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, ids):
        return self.layer(ids)


def functional(layer, *more):
    inputs = keras.Input((*more, None, 50), dtype="int32")
    return keras.Model(inputs, layer(inputs))


def saved(model, folder):
    """The model, saved and loaded as in another process."""
    model.save(folder / "model.keras")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Elmo, "_living", weakref.WeakValueDictionary())
        return keras.models.load_model(folder / "model.keras")


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        lambda layer, ids: layer(ids),
        lambda layer, ids: functional(layer)(ids),
        lambda layer, ids: tf.function(layer, autograph=False)(ids),
        lambda layer, ids: Subclass(layer).predict(ids, verbose=0),
    ],
    ids=["eager", "functional", "graph", "predict"],
)
def test_layer_made_in_layer_has_weights(run, files):
    np.testing.assert_allclose(run(Made(lambda: Elmo(*files)), IDS), Elmo(*files)(IDS), atol=1e-6)


@pytest.mark.slow
def test_model_made_in_scope_has_weights(files):
    expected = ElmoEmbedder(*files).embed_sentence(["a", "b"])
    with keras.name_scope("outer"):
        embedder = ElmoEmbedder(*files)
        model = BidirectionalLanguageModel(*files)
    np.testing.assert_array_equal(copy.deepcopy(embedder).embed_sentence(["a", "b"]), expected)
    ids = Batcher(None, 50).batch_sentences([["a", "b"]])
    np.testing.assert_allclose(model(ids).lm_embeddings[0], expected, atol=1e-6)


IDS = batch_to_ids([["a", "b"], ["c"]])
TEXTS = tf.constant(["the cat sat", "a", "some more words than before"])


def model_on_strings(files, **arguments):
    inputs = keras.Input((), dtype="string")
    vectors = Elmo(*files, **arguments)(SentenceVectorizer()(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(vectors)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [{}, {"keep_sentence_boundaries": True, "do_layer_norm": True, "l2_coef": 0.1}],
    ids=["plain", "all"],
)
def test_model_masks_padding_and_is_saved(arguments, files, tmp_path):
    model = model_on_strings(files, **arguments)
    again = saved(model, tmp_path)
    np.testing.assert_allclose(again(TEXTS), model(TEXTS), atol=1e-6)
    elmos = [next(layer for layer in each.layers if isinstance(layer, Elmo)) for each in (again, model)]
    configs = [elmo.get_config() | {"original": ""} for elmo in elmos]
    assert configs[0] == configs[1] and arguments.items() <= configs[0].items()
    if not arguments:
        alone = tf.concat([model(TEXTS[i : i + 1]) for i in range(3)], axis=0)
        np.testing.assert_allclose(model(TEXTS), alone, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class OfUser(keras.Model):
    """A model whose layers Keras builds when it is called, or by the shape of its input when it is loaded."""

    def __init__(self, files, **arguments):
        super().__init__(**arguments)
        self.files = [*map(str, files)]
        self.parts = [SentenceVectorizer(), Elmo(*files), keras.layers.Dense(2)]

    def call(self, sentences):
        for part in self.parts:
            sentences = part(sentences)
        return sentences

    def get_config(self):
        return {"files": self.files}


@pytest.mark.slow
def test_model_of_a_users_class_is_saved(files, tmp_path):
    model = OfUser(files)
    for variable in model.parts[1].encoder.weights:  # as if fine-tuned
        variable.assign(1.1 * variable)
    expected = model(TEXTS)
    np.testing.assert_allclose(saved(model, tmp_path)(TEXTS), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("trainable", [True, False])
def test_training_changes_biLM_if_trainable(trainable, files):
    model = model_on_strings(files, trainable=trainable, l2_coef=0.01)
    layer = next(layer for layer in model.layers if isinstance(layer, Elmo))
    before = {variable.path: variable.numpy() for variable in layer.weights}
    with tf.GradientTape() as tape:
        result = tf.reduce_sum(layer(SentenceVectorizer()(TEXTS)))
    gradients = tape.gradient(result, [weight.value for weight in layer.encoder.weights])
    assert {gradient is not None for gradient in gradients} == {trainable}  # none is computed in vain
    model.compile(keras.optimizers.Adam(0.01), loss="mse")
    history = model.fit(TEXTS, tf.constant([[1.0], [0.0], [-1.0]]), epochs=4, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    changed = {v.path for v in layer.weights if not np.array_equal(v, before[v.path])}
    assert changed == {path for path in before if trainable or "mix_0" in path}


@pytest.mark.slow
def test_tensorflow_saves_all_variables(files, tmp_path):
    """They do not look into the lists of Keras layers."""
    models = [model_on_strings(files) for _ in range(2)]
    for variable in models[0].weights:
        variable.assign(variable + 1.0)
    path = tf.train.Checkpoint(models[0]).save(tmp_path / "checkpoint")
    tf.train.Checkpoint(models[1]).restore(path).assert_consumed()
    for one, other in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_array_equal(one, other)
    tf.saved_model.save(models[0], str(tmp_path / "saved"))
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    sentences = tf.constant(["Time flies"])
    [output] = served(sentences).values()
    np.testing.assert_allclose(output, models[0](sentences), atol=1e-6)


def test_configuration_naming_files_is_refused(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # which would wait for ever
    for name in ("options_file", "weight_file", "model"):
        config = Elmo(*files).get_config() | {name: str(tmp_path / "pipe")}
        with pytest.raises(OptionsError, match=f"{name}: the configuration of a saved Elmo .* names no file"):
            keras.layers.deserialize({"class_name": "bilm>Elmo", "config": config})


def test_elmo_gives_representations_with_dropout():
    layer = Elmo(*FILES, num_output_representations=2, dropout=0.5)
    first, second = layer(IDS)
    np.testing.assert_array_equal(first, second)
    layer.mixes[1].gamma.assign([2.0])
    np.testing.assert_allclose(layer(IDS)[1], 2 * first, atol=1e-6)
    dropped = layer(IDS, training=True)[0].numpy()[0]
    assert 0.2 < (dropped == 0).mean() < 0.8
    assert [mask.numpy().tolist() for mask in layer.compute_mask(IDS)] == [[[True, True], [True, False]]] * 2


def test_frozen_layer_stays_frozen(files, tmp_path):
    elmo = Elmo(*files, 2, trainable=True)
    elmo.mixes[1].trainable = False
    assert len(keras.models.clone_model(functional(elmo)).trainable_weights) == len(elmo.trainable_weights)
    elmo.trainable = False
    assert not saved(functional(elmo), tmp_path).trainable_weights


def test_keep_sentence_boundaries_adds_marks(files):
    inner, outer = Elmo(*files)(IDS), Elmo(*files, keep_sentence_boundaries=True)(IDS)
    assert outer.shape == (2, 4, 4)
    np.testing.assert_allclose(outer[0, 1:3], inner[0], atol=1e-6)
    assert np.any(outer[1, 2]) and not np.any(outer[1, 3])


def test_layer_norm_includes_boundaries_as_allennlp(files):
    ids, parameters = batch_to_ids(sentences_of("char", 5)), [0.5, -1.0]
    elmo = Elmo(*files, do_layer_norm=True, scalar_mix_parameters=parameters)
    layers, mask = elmo.layers_of(ids)
    mixed = ScalarMix(do_layer_norm=True, initial_scalar_parameters=parameters)(layers, mask)
    expected = np.where(np.array(elmo.word_mask(ids))[..., None], mixed[:, 1:-1], 0.0)
    np.testing.assert_allclose(elmo(ids), expected, atol=1e-5)


def test_elmo_has_its_own_type(files):
    ids = batch_to_ids([["a"]])
    assert Elmo(*files, dropout=0.5, dtype="mixed_float16")(ids).dtype == "float16"
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        assert Elmo(*files, dropout=0.5, dtype="float32")(ids, training=True).dtype == "float32"
        keras.mixed_precision.set_dtype_policy("float64")
        output = BidirectionalLanguageModel(*files)(Batcher(None, 50).batch_sentences([["a"]]))
        assert weight_layers("mix", output, l2_coef=0.1).regularization_op.dtype == "float64"
    finally:
        keras.mixed_precision.set_dtype_policy("float32")


def test_elmo_takes_more_dimensions(files):
    layer, ids = Elmo(*files, num_output_representations=2), batch_to_ids([["a", "b"], ["c"], [], ["d"]])
    flat, nested = layer(ids), layer(ids.reshape(2, 2, 2, 50))
    np.testing.assert_array_equal(nested[1], tf.reshape(flat[1], (2, 2, 2, 4)))
    masks = layer.compute_mask(ids.reshape(2, 2, 2, 50))
    assert masks[0].numpy().tolist() == [[[True, True], [True, False]], [[True, False], [True, False]]]
    boundaries = Elmo(*files, keep_sentence_boundaries=True)
    model = functional(lambda ids: [*layer(ids), boundaries(ids)], None)
    outputs = model(ids.reshape(2, 2, 2, 50))
    np.testing.assert_allclose(outputs[0], nested[0], atol=1e-6)
    assert model.outputs[2].shape == (None, None, None, 4) and outputs[2].shape == (2, 2, 4, 4)


@pytest.mark.slow
def test_blank_sentences_have_one_step(files, tmp_path):
    both = keras.layers.Bidirectional(keras.layers.LSTM(2))
    model = functional(lambda ids: both(Elmo(*files)(ids)))
    blank = batch_to_ids([[], []])
    np.testing.assert_array_equal(model.predict(blank, verbose=0), np.zeros((2, 4)))
    layer = Elmo(*files)
    assert layer(blank).shape == (2, 1, 4) and not np.any(layer(blank))
    assert layer.compute_mask(blank).numpy().tolist() == [[True], [True]]
    assert layer.compute_output_shape((2, 0, 50)) == (2, 1, 4)
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None)
    assert Elmo(options, weights)([[1, 2]]).shape == (1, 1, 8)


def test_elmo_checks_ids(files):
    layer, ids = Elmo(*files), batch_to_ids([["a", "b"]])
    for wrong in (keras.Input((None, 49)), ids - 300):
        with pytest.raises(DataError, match=r"ids must be whole numbers \(rows, words, 50\), .*, got"):
            layer(wrong)


def test_elmo_takes_arguments_of_allennlp(files):
    assert Elmo(*files, 2, requires_grad=True).encoder.trainable
    elmo = Elmo(*files, 1, requires_grad=False, vocab_to_cache=[], module=None)
    assert not elmo.encoder.trainable and elmo.get_output_dim() == 4
    chosen = Elmo(*files, 1, scalar_mix_parameters=[-9e10, 1])
    assert not chosen.trainable_weights
    elmo.mixes[0].layer_weights.assign([-9e10, 1])
    ids = batch_to_ids([["a", "b"]])
    np.testing.assert_array_equal(elmo(ids), chosen(ids))
    config = chosen.get_config()
    again = Elmo.from_config(json.loads(json.dumps(config)))
    assert again.get_config() | {"original": config["original"]} == config
    config = Elmo(*files, 2, True, True, 0.25, None, True, [1, 2]).get_config()  # by AllenNLP's places
    assert config["num_output_representations"] == 2 and config["dropout"] == 0.25
    assert config["trainable"] and config["do_layer_norm"] and config["keep_sentence_boundaries"]
    assert config["scalar_mix_parameters"] == [1, 2]


@pytest.mark.parametrize("n_mixes", [1, 2])
def test_allennlp_elmo_returns_dictionary(n_mixes, files, tmp_path):
    theirs = bilm.allennlp.Elmo(*files, n_mixes)
    assert theirs.dropout.rate == 0.5
    result = theirs(IDS, training=False)
    assert len(result["elmo_representations"]) == n_mixes
    for vectors in result["elmo_representations"]:
        np.testing.assert_array_equal(vectors, Elmo(*files)(IDS))
    np.testing.assert_array_equal(result["mask"], [[True, True], [True, False]])
    again = saved(functional(lambda ids: theirs(ids)["elmo_representations"][-1]), tmp_path)
    np.testing.assert_array_equal(again(IDS), result["elmo_representations"][-1])


@pytest.mark.slow
def test_allennlp_names_work_on_tensorflow(files, caplog, tmp_path):
    names = importlib.reload(bilm.allennlp)
    assert "KERAS_BACKEND to torch before Keras is imported" in caplog.text
    embedder = names.ElmoEmbedder(*files)
    assert embedder.elmo_bilm.num_layers == 2  # with the word vectors
    vectors, mask = embedder.batch_to_embeddings([["a", "b"], ["c"]])
    ids = names.batch_to_ids([["a", "b"], ["c"]])
    accented = names.batch_to_ids([["e\u0301"]], 20, "NFC")
    np.testing.assert_array_equal(accented, bilm.batch_to_ids([["\u00e9"]], 20))
    for biLM in (names._ElmoBiLm(*files), functional(embedder.elmo_bilm)):
        result = biLM(ids)
        assert len(result["activations"]) == 2
        for i, layer in enumerate(result["activations"]):
            layer, of_words = names.remove_sentence_boundaries(layer, result["mask"])
            np.testing.assert_allclose(layer, vectors[:, i], atol=1e-6)
            np.testing.assert_array_equal(of_words, mask)
    assert "mask" in names.Elmo(*files, 1).forward(ids)
    words = names.ElmoEmbedder(*write_model(tmp_path, n_words=73, char_cnn=None), vocab_file=VOCAB)
    assert words.elmo_bilm.encoder.options.n_tokens_vocab == 73
    for call in (names.ElmoEmbedder, lambda: Elmo(files[0], Path(names.DEFAULT_WEIGHT_FILE))):
        with pytest.raises(BilmError, match="is a URL; download it and give the path of the file"):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scalar_mix_parameters": [1, 2]}, "scalar_mix_parameters: 2 numbers, but the model has 3 layers"),
        ({"num_output_representations": 0}, "num_output_representations is 0"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and less than 1"),
        ({"requires_grad": "no"}, "`requires_grad` is 'no'; it must be True or False"),
        ({"trainable": 0}, "`trainable` is 0; it must be True or False"),
        ({"keep_sentence_boundaries": "no"}, "`keep_sentence_boundaries` is 'no'"),
        ({"do_layer_norm": "no"}, "`do_layer_norm` is 'no'"),
        ({"weight_file": 3}, "`weight_file` is 3; it must be a path"),
    ],
    ids=["layers", "mixes", "dropout", "gradient", "trainable", "boundaries", "norm", "weights"],
)
def test_wrong_arguments_are_refused(arguments, message):
    for kind in (Elmo, bilm.allennlp.Elmo):
        with pytest.raises(OptionsError, match=message):
            kind(**{"options_file": FILES[0], "weight_file": FILES[1], **arguments})


@pytest.mark.slow
def test_elmo_takes_word_ids(tmp_path):
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None)
    ids = TokenBatcher(VOCAB).batch_sentences([["the", "cat"], ["the"]])
    expected = BidirectionalLanguageModel(options, weights, use_character_inputs=False)(ids)
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, Elmo(options, weights)(inputs))
    np.testing.assert_allclose(model(ids), tf.reduce_mean(expected.lm_embeddings, axis=1), atol=1e-6)


def test_vectorizer_takes_one_string_a_sentence():
    for sentences, n_rows in (("a b", 1), (["a", "b c"], 2), ([["a"], ["b c"]], 2)):
        assert len(SentenceVectorizer()(sentences)) == n_rows
    for sentences in ([1, 2], np.array(["a", 1], object), None, [["a", "b"]], [[["a"]]]):
        message = "must be strings" if np.ndim(sentences) < 2 else r"must be \(batch,\) or \(batch, 1\), one"
        with pytest.raises(DataError, match=f"^sentences {message}"):
            SentenceVectorizer()(sentences)


def test_width_of_numpy_is_saved():
    json.dumps(SentenceVectorizer(np.int64(20)).get_config())


def attended(vectors):
    return keras.layers.GlobalMaxPooling1D()(keras.layers.Attention()([vectors, vectors]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "pooled",
    [keras.layers.GlobalAveragePooling1D(), keras.layers.LSTM(2), attended],
    ids=["mean", "lstm", "attention"],
)
def test_empty_text_leaves_weights_finite(pooled, files):
    inputs = keras.Input((), dtype="string")
    layer = Elmo(*files, trainable=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled(layer(SentenceVectorizer()(inputs)))))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(tf.constant(["the cat", "", " "]), np.ones((3, 1)), batch_size=3, verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    ids = batch_to_ids([["a", "b"], []])
    assert np.array(layer.compute_mask(ids)).tolist() == [[True, True], [True, False]]
    assert not np.any(layer(ids)[1]) and np.array(layer.word_mask(ids)).tolist() == [[True] * 2, [False] * 2]


def test_clones_have_weights_of_original(files):
    layer, ids = Elmo(*files), batch_to_ids([["a", "b"]])
    configuration = layer.get_config()
    for variable in layer.encoder.weights:  # as if fine-tuned
        variable.assign(1.1 * variable)
    model = functional(layer)
    clones = [keras.models.clone_model(model), keras.Model.from_config(model.get_config())]
    clones += [keras.models.model_from_json(model.to_json()), keras.models.clone_model(clones[0])]
    earlier = configuration | {"fingerprint": "0"}  # as earlier versions wrote it
    for clone in (*clones, Elmo.from_config(earlier)):
        np.testing.assert_array_equal(clone(ids), model(ids))


def test_dump_weights_writes_tuned_weights(files, tmp_path):
    ids, layer = batch_to_ids([["a", "b"]]), Elmo(*files, trainable=True)
    for variable in layer.encoder.weights:  # as if fine-tuned
        variable.assign(1.1 * variable)
    model = functional(layer)
    result = saved(model, tmp_path).layers[-1].dump_weights(tmp_path / "tuned.hdf5")
    assert (result.options_file, result.n_arrays) == (tmp_path / "options.json", len(layer.encoder.weights))
    np.testing.assert_array_equal(Elmo(result.options_file, result.weight_file)(ids), model(ids))
    with pytest.raises(BilmError, match=r"tuned\.hdf5: exists"):
        layer.dump_weights(tmp_path / "tuned.hdf5")
    layer.encoder.char_cnn.biases[0].assign_add([np.nan] * 4)
    with pytest.raises(BilmError, match="holds nan"):
        layer.dump_weights(tmp_path / "other.hdf5")
    assert not (tmp_path / "other.hdf5").exists()
