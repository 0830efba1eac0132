import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.data.pipeline import Batch, training_batches
from bilm.data.stream import Order
from bilm.models.encoder import Encoder
from bilm.models.language_model import LanguageModel
from bilm.options import CharCNNOptions, LSTMOptions, Options
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.weights.names import weight_names
from tests.corpora import expand

WORDS = ["<S>", "</S>", "<UNK>", "the", "owl", "saw", "a", "barrel", "."]
CHARACTERS = Options(
    lstm=LSTMOptions(8, 4, n_layers=2, cell_clip=3.0, proj_clip=2.0, use_skip_connections=True),
    char_cnn=CharCNNOptions(((1, 4), (2, 4), (3, 4)), embedding_dim=3, n_highway=1),
    bidirectional=True,
    n_tokens_vocab=len(WORDS),
    unroll_steps=6,
    batch_size=2,
)
ONE_LAYER = CHARACTERS.with_values({"bidirectional": False, "char_cnn": None, "lstm.n_layers": 1})
PENALTIES = {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0}
DROPOUTS = {"variational_dropout": False, "word_dropout": 0.1}
REGULARIZED = CHARACTERS.with_values(DROPOUTS | PENALTIES)
WORD_LEVEL = CHARACTERS.with_values({"char_cnn": None})
VARIANTS = {
    "characters": CHARACTERS,
    "words": WORD_LEVEL,
    "shared": WORD_LEVEL.with_values({"share_embedding_softmax": True}),
    "plain forward": dataclasses.replace(CHARACTERS, lstm=LSTMOptions(6, 6), bidirectional=False),
}


@pytest.fixture
def batch(tmp_path):
    (tmp_path / "text").write_text("the owl saw a barrel .\nthe barrels .\nunseen\n")

    def read(options):
        kind = Vocabulary if options.char_cnn is None else UnicodeCharsVocabulary
        vocabulary = kind.from_words(WORDS)
        return next(training_batches([tmp_path / "text"], vocabulary, options, Order(shuffle=False))).parts[0]

    return read


def test_later_layers_keep_the_training_flag():
    class Dropped(keras.Model):
        def __init__(self):
            super().__init__()
            self.model, self.dropout = LanguageModel(ONE_LAYER), keras.layers.Dropout(0.5)

        def call(self, inputs, training=None):
            return self.dropout(self.model(inputs)["forward"])

    assert np.any(Dropped()({"token_ids": np.array([[0, 5, 7]])}, training=True) == 0)


def test_initial_values_are_those_of_bilm_tf():
    model = LanguageModel(Options(LSTMOptions(256, 64), n_tokens_vocab=500, softmax_init_scale=1.0))
    assert np.std(model.softmax.kernel) == pytest.approx(1 / 8, rel=0.05)
    for name, weight in model.named_weights().items():
        if len(weight.shape) > 1 and not name.startswith("softmax"):
            assert np.abs(weight).max() == pytest.approx((6 / sum(weight.shape)) ** 0.5, rel=0.01), name


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_language_model_is_keras_model(options, tmp_path):
    model = LanguageModel(options)
    assert model.count_params() == sum(np.prod(name.shape) for name in weight_names(options))
    assert {key: tuple(weight.shape) for key, weight in model.named_weights().items()} == {
        name.own: name.shape for name in weight_names(options)
    }
    assert [*map(id, model.named_weights().values())] == [*map(id, model.weights)]
    assert {each.clips for each in model.encoder.lstms} == {(options.lstm.cell_clip, options.lstm.proj_clip)}
    assert LanguageModel.from_config(model.get_config()).options.to_json() == options.to_json()
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    for name, weight in model.named_weights().items():
        np.testing.assert_array_equal(reloaded.named_weights()[name], weight)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_losses_equal_the_logits_cross_entropy(options, batch):
    model = LanguageModel(options)
    inputs = batch(options)
    losses = model.losses(inputs, model.zero_states(2))
    for direction, suffix in zip(range(options.n_directions), ("", "_reverse"), strict=False):
        tokens = inputs.token_types[direction].T  # (rows, steps)
        if options.char_cnn is None:
            ids = {"token_ids": tokens, "token_ids_reverse": tokens}
        else:
            characters = expand(inputs)[direction]
            widths = [(0, 0), (0, 0), (0, 50 - characters.shape[-1])]
            characters = np.pad(characters, widths, constant_values=260)
            ids = {"tokens_characters": characters, "tokens_characters_reverse": characters}
        logits = model(ids)["backward" if suffix else "forward"]
        exact = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.targets[direction].T, logits)
        total = tf.reduce_sum(exact)
        assert float(losses.sums[direction]) == pytest.approx(float(total), rel=1e-5)


def test_softmax_biases_start_at_the_unigram_distribution(batch):
    model = LanguageModel(dataclasses.replace(CHARACTERS, softmax_init_scale=0.0))
    counts = np.arange(len(WORDS))
    model.start_softmax_biases(counts)
    inputs = batch(CHARACTERS)
    losses = model.losses(inputs, model.zero_states(2))
    probabilities = (counts + 1) / (counts + 1).sum()
    exact = -np.log(probabilities)[inputs.targets].sum((1, 2))
    np.testing.assert_allclose(losses.sums, exact, rtol=1e-5)


def test_softmax_rows_start_at_vectors_that_are_not_zeros():
    model = LanguageModel(CHARACTERS)
    before = model.softmax.kernel.numpy()
    vectors = np.random.default_rng(0).normal(size=before.shape).astype(np.float32)
    vectors[2] = 0.0
    vectors[3, 0] = 0.0
    model.start_softmax_rows(vectors)
    vectors[2] = before[2]
    np.testing.assert_array_equal(model.softmax.kernel, vectors)


class TestDropout:
    def outputs(self, options, seed):
        model = LanguageModel(options)
        rng = np.random.default_rng(0)
        for weight in model.weights:
            weight.assign(0.3 * rng.normal(size=weight.shape))
        words = tf.constant(rng.normal(size=(6, 2, 4)), tf.float32)
        dropout = None if seed is None else tf.constant([seed, 1])
        outputs, _ = model.encoder.run_direction(0, words, model.zero_states(2)[0], dropout)
        return model.encoder.drop(outputs[-1], 0, 3, dropout).numpy()

    def test_masks_follow_from_the_seed(self):
        assert np.array_equal(self.outputs(CHARACTERS, 1), self.outputs(CHARACTERS, 1))
        assert not np.array_equal(self.outputs(CHARACTERS, 1), self.outputs(CHARACTERS, 2))

    @pytest.mark.parametrize("variational", [True, False])
    def test_variational_masks_hold_for_the_window(self, variational):
        options = dataclasses.replace(CHARACTERS, dropout=0.5, variational_dropout=variational)
        dropped = self.outputs(options, 3) == 0  # (steps, rows, dim)
        same = np.all(dropped == dropped[:1], axis=0)
        assert dropped.any() and same.all() == variational
        assert not np.array_equal(dropped[:, 0], dropped[:, 1])

    def test_residual_adds_dropped_inputs(self):
        model = LanguageModel(dataclasses.replace(CHARACTERS, dropout=0.5))
        for weight in model.encoder.stacks[0][1].weights:
            weight.assign(tf.zeros_like(weight))
        words, seed = tf.random.stateless_normal([6, 2, 4], [1, 2]), tf.constant([3, 1])
        outputs, _ = model.encoder.run_direction(0, words, model.zero_states(2)[0], seed)
        assert np.array_equal(outputs[1], model.encoder.drop(outputs[0], 0, 2, seed))

    def test_word_dropout_drops_whole_tokens(self):
        model = LanguageModel(dataclasses.replace(CHARACTERS, word_dropout=0.4))
        kept = model.encoder.drop(tf.ones([50, 7, 9]), 0, 0, tf.constant([1, 2])).numpy()
        zero = (kept == 0).all(-1)
        assert np.all(zero | np.isclose(kept, 1 / 0.6).all(-1))
        assert zero.mean() == pytest.approx(0.4, abs=0.1)
        options = dataclasses.replace(CHARACTERS, dropout=0.0, word_dropout=0.9)
        assert not np.array_equal(self.outputs(options, 1), self.outputs(options, None))

    def test_every_place_has_its_own_mask(self, batch, monkeypatch):
        places = []
        record = lambda seed, place: places.append(place) or seed  # noqa: E731
        monkeypatch.setattr(tf.random.experimental, "stateless_fold_in", record)
        model = LanguageModel(dataclasses.replace(CHARACTERS, word_dropout=0.1))
        model.losses(batch(CHARACTERS), model.zero_states(2), dropout_seed=tf.constant([1, 2]))
        assert len(set(places)) == len(places) == 2 * 4  # words, two layers, and the output

    def test_penalties_of_activations(self, batch):
        options = dataclasses.replace(REGULARIZED, dropout=0.5, variational_dropout=True)
        model, inputs = LanguageModel(options), batch(options)
        seed, expected = tf.constant([1, 2]), []
        words = tf.gather(model.encoder.encode_types(inputs.type_characters), inputs.token_types)
        for direction in range(2):
            states = model.zero_states(2)[direction]
            outputs, _ = model.encoder.run_direction(direction, words[direction], states, seed)
            dropped = model.encoder.drop(outputs[-1], direction, 3, seed)
            output, dropped = outputs[-1].numpy(), dropped.numpy()
            assert np.any(dropped == 0)
            expected.append(2 * np.mean(dropped**2) + np.mean((output[1:] - output[:-1]) ** 2))
        found = model.losses(inputs, model.zero_states(2), dropout_seed=seed)
        assert float(found.penalty) == pytest.approx(np.mean(expected), rel=1e-5)
        assert float(model.losses(inputs, model.zero_states(2)).penalty) == 0.0
        one = batch(dataclasses.replace(options, unroll_steps=1))  # in which nothing changes
        assert np.isfinite(model.losses(one, model.zero_states(2), dropout_seed=seed).penalty)

    @pytest.mark.parametrize("moved", ["word_vector_tying", "softmax_row_tying"])
    def test_penalty_of_distance_of_words_and_rows(self, moved, batch):
        """Words outside the vocabulary have no row; each other word of the batch counts once."""
        options = dataclasses.replace(CHARACTERS, **{moved: 2.0}, bidirectional=False)
        model, inputs = LanguageModel(options), batch(options)
        vectors = model.encoder.encode_types(inputs.type_characters).numpy()
        spelled = UnicodeCharsVocabulary.from_words(WORDS).word_char_ids
        rows = [*zip(spelled, model.softmax.kernel.numpy(), strict=True)]
        types = (word for part in inputs.type_characters for word in part)
        typed = [*zip(types, vectors, strict=True)]
        pairs = [(x, y) for word, x in typed for ids, y in rows if np.array_equal(word, ids[: len(word)])]
        distances = [1 - x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in pairs]
        with tf.GradientTape() as tape:
            found = model.losses(inputs, model.zero_states(2), dropout_seed=tf.constant([1, 2]))
        gradients = tape.gradient(found.penalty, [weight.value for weight in model.weights])
        named = zip(model.named_weights(), gradients, strict=True)
        changed = {name.partition("/")[0] for name, gradient in named if gradient is not None}
        assert changed == ({"encoder"} if moved == "word_vector_tying" else {"softmax"})
        assert 0 < len(distances) < len(vectors)
        assert float(found.penalty) == pytest.approx(2 * np.mean(distances), rel=1e-5)
        seed = {"dropout_seed": tf.constant([1, 2])}
        half = model.losses(inputs, model.zero_states(2), **seed, tying_share=0.5).penalty
        assert float(half) == pytest.approx(np.mean(distances), rel=1e-5)
        assert float(model.losses(inputs, model.zero_states(2)).penalty) == 0.0
        model.softmax.kernel.assign(tf.zeros_like(model.softmax.kernel))
        with tf.GradientTape() as tape:
            penalty = model.losses(inputs, model.zero_states(2), dropout_seed=tf.constant([1, 2])).penalty
        gradients = tape.gradient(penalty, [weight.value for weight in model.weights])
        assert tf.linalg.global_norm(gradients) < 1000, "rows of zeros have no endless gradient"


@pytest.mark.slow
def test_directions_in_turn_equal_those_at_once(monkeypatch):
    expected = losses_and_gradients("float32", CHARACTERS)
    monkeypatch.setattr("bilm.models.language_model._LARGE_WINDOW", 0)
    found = losses_and_gradients("float32", CHARACTERS)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def losses_and_gradients(precision, options):
    """Of one window with dropout."""
    model, rng = LanguageModel(options, precision=precision), np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(0.3 * rng.normal(size=weight.shape))
    shape = (options.n_directions, 6, 2)
    rows = (tf.constant(rng.integers(0, 261, (20, 50)), tf.int32),) if options.char_cnn else ()
    n_types = 20 if rows else len(WORDS)
    types, targets = (tf.constant(rng.integers(0, n, shape), tf.int32) for n in (n_types, len(WORDS)))
    type_words = tf.range(n_types if rows else 0) % len(WORDS)
    window = Batch(rows, type_words, types, targets)
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function(autograph=False)
    def compute():
        with tf.GradientTape() as tape:
            losses = model.losses(window, model.zero_states(2), dropout_seed=tf.constant([1, 2]))
            objective = tf.reduce_mean(losses.sums) / 12 + losses.penalty
        gradients = tape.gradient(objective, variables)
        return losses, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return compute()


@pytest.mark.parametrize("flags", ["fma avx2", "avx2 avx512_bf16"])
def test_bfloat16_warns_on_slow_processor(flags, monkeypatch, caplog):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"flags : {flags}\n")
    Encoder(ONE_LAYER, "bfloat16")
    assert ("bfloat16 is slower than float32 here" in caplog.text) == ("bf16" not in flags)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "tolerance", "options"),
    [  # Relative: a factor of bfloat16 has 8 significant bits, one of float16 has 11.
        pytest.param("bfloat16", 2e-3, ONE_LAYER, id="bfloat16"),
        pytest.param("float16", 2e-4, REGULARIZED, id="float16, regularized"),
    ],
)
def test_losses_of_a_precision_are_near_those_of_float32(precision, tolerance, options):
    exact, exact_gradients = losses_and_gradients("float32", options)
    losses, gradients = losses_and_gradients(precision, options)
    np.testing.assert_allclose(losses.sums, exact.sums, rtol=tolerance)
    assert not np.array_equal(losses.sums, exact.sums)
    assert {tensor.dtype for tensor in tf.nest.flatten((losses, gradients))} == {tf.float32}
    for found, wanted in zip(gradients, exact_gradients, strict=True):
        assert tf.norm(found - wanted) < 100 * tolerance * tf.norm(wanted)
    model = LanguageModel.from_config(LanguageModel(options, precision=precision).get_config())
    assert model.encoder.precision == precision
    assert {weight.dtype for weight in model.weights} == {"float32"}
