"""Optimizers, and what an update does to weights: rates, clipping, decay."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS, Decay, Optimizer, Options
from bilm.training import optimizers
from bilm.training.meter import LossScale, perplexity
from bilm.training.optimizers import Adagrad, Muon
from bilm.training.update import decay_weights, deduplicate, learning_rate, update
from tests.helpers import small_options

RATE = 0.01


def variable(values, name="table"):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def built(optimizer, *variables):
    optimizer.build([*variables])
    return optimizer


def sparse(random, shape, rows):
    """A gradient of some rows, one of them named twice."""
    rows = np.append(rows, rows[:1])
    values = random.normal(size=(len(rows), *shape[1:])).astype(np.float32)
    return deduplicate(tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant(shape)))


# --- rows of sparse gradients -----------------------------------------------------------------------


def test_adagrad_equals_keras_on_full_rows():
    random = np.random.default_rng(1)
    tables = [variable(np.ones((5, 2)), name) for name in ("rows", "dense", "keras")]
    own, other = built(Adagrad(RATE), *tables[:2]), built(keras.optimizers.Adagrad(RATE, 1.0, 0.0), tables[2])
    for _ in range(10):
        gradient = sparse(random, (5, 2), random.permutation(5))
        own.apply([gradient, tf.convert_to_tensor(gradient)], tables[:2])
        other.apply([tf.convert_to_tensor(gradient)], tables[2:])
    for table in tables[:2]:
        np.testing.assert_allclose(table, tables[2], atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 3), (7,)])
def test_muon_changes_only_named_rows(shape):
    random = np.random.default_rng(0)
    start = random.normal(size=shape)
    table, expected = variable(start, "W"), start.copy()
    optimizer, v = built(Muon(RATE, [0]), table), np.zeros(shape)
    for step in range(1, 21):
        gradient = sparse(random, shape, random.choice(6, 3, replace=False))  # row 6 never
        optimizer.apply([gradient], [table])
        rows, values = gradient.indices.numpy(), gradient.values.numpy()
        v[rows] = 0.999 * v[rows] + (1 - 0.999) * values**2
        rate, least = RATE * np.sqrt(1 - 0.999**step), 0.05 * np.sqrt(np.mean(values**2))
        expected[rows] -= 3.0 * rate * values / (np.sqrt(v[rows]) + least)
        np.testing.assert_allclose(table, expected, atol=2e-6)
    np.testing.assert_allclose(optimizer.moment(table), v, atol=1e-6)


# --- matrices ---------------------------------------------------------------------------------------


def iterated(matrix):
    """The three polynomials, on each singular value by itself, in float64."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values /= np.sqrt(np.linalg.norm(values**2))
    squares, factors = values**2 + 3e-4, np.ones_like(values)
    for a, b, c in ((7.8219, -22.5507, 16.5959), (3.3261, -2.4942, 0.5107), (2.3073, -1.6749, 0.4195)):
        factor = a + b * squares + c * squares**2
        squares, factors = squares * factor**2, factors * factor
    return left * (values * factors) @ right


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 5, 5), (2, 1, 3)])
def test_orthogonalised_applies_the_polynomials_to_the_singular_values(shape):
    matrices = np.random.default_rng(0).normal(size=shape)
    found = optimizers.orthogonalised(tf.constant(matrices, tf.float32)).numpy()
    np.testing.assert_allclose(found, [iterated(matrix) for matrix in matrices], atol=1e-4)
    zeros = tf.zeros(shape)
    np.testing.assert_array_equal(optimizers.orthogonalised(zeros), zeros)


def test_orthogonalised_in_bfloat16_is_near_float32():
    matrices = tf.random.stateless_normal((2, 16, 40), (0, 0))
    near = optimizers.orthogonalised(tf.cast(matrices, tf.bfloat16))
    assert near.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(near, tf.float32), optimizers.orthogonalised(matrices), atol=0.06)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((4, 9), [4]), ((9, 4), [4]), ((10, 12), [4, 4, 2]), ((12, 10), [4, 4, 2]), ((9, 12), [3, 3, 3])],
)
def test_blocks_are_independent(shape, sizes):
    matrix = np.random.default_rng(7).normal(size=shape)
    found = optimizers.orthogonalised_in_blocks(tf.constant(matrix[None], tf.float32), 4).numpy()[0]
    axis = int(shape[0] > shape[1])
    blocks = np.split(matrix, np.cumsum(sizes)[:-1], axis)
    np.testing.assert_allclose(found, np.concatenate(list(map(iterated, blocks)), axis), atol=1e-4)


def test_muon_steps_matrices_gates_and_filters():
    random = np.random.default_rng(3)
    matrix, filters = variable(np.ones((6, 8)), "projection"), variable(np.ones((1, 3, 2, 8)), "W_cnn_2")
    kernel = variable(np.ones((6, 32)), "kernel")
    expected, momentum = np.ones((4, 6, 8)), np.zeros((4, 6, 8))
    optimizer = built(Muon(RATE, [1, 1, 4]), matrix, filters, kernel)
    for _ in range(5):
        gradients = random.normal(size=(4, 6, 8))
        parts = gradients[0], gradients[0].reshape(filters.shape), np.concatenate(gradients, axis=1)
        optimizer.apply([tf.constant(part, tf.float32) for part in parts], [matrix, filters, kernel])
        momentum = 0.9 * momentum + gradients
        steps = np.stack([iterated(one) for one in gradients + 0.9 * momentum])
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)  # each of the 8 columns, of 6 rows
        expected -= 0.28 * RATE * np.sqrt(6) * steps
        np.testing.assert_allclose(matrix, expected[0], atol=1e-4)
        np.testing.assert_array_equal(np.reshape(filters, (6, 8)), matrix)
        np.testing.assert_allclose(kernel, np.concatenate(expected, axis=1), atol=1e-4)


def test_muon_steps_transpose_alike():
    wide, tall = variable(np.ones((6, 8)), "projection"), variable(np.ones((8, 6)), "W_proj")
    gradient = np.random.default_rng(4).normal(size=(6, 8)) * [1, 1, 1, 1, 1, 1, 0, 1e-4]
    built(Muon(RATE, [1, 1]), wide, tall).apply(
        [tf.constant(g, tf.float32) for g in (gradient, gradient.T)], [wide, tall]
    )
    np.testing.assert_allclose(tall, np.transpose(wide), atol=1e-6)
    changes = np.sqrt(np.mean(np.square(wide - 1), axis=0)) / (0.28 * RATE)
    np.testing.assert_allclose(changes, [1, 1, 1, 1, 1, 1, 0, 0], atol=0.02)


def test_muon_steps_vectors_by_rmsprop():
    random = np.random.default_rng(5)
    tables = [variable(np.ones((5, 3)), "W") for _ in range(2)]
    bias, v = variable(np.ones(5), "b_proj"), np.zeros((5, 3))
    of_tables, of_bias, optimizer = np.ones((5, 3)), np.ones(5), built(Muon(RATE, [0, 0, 0]), *tables, bias)
    for step in range(1, 4):
        gradient = sparse(random, (5, 3), random.permutation(5))
        dense = tf.convert_to_tensor(gradient).numpy()
        optimizer.apply([gradient, tf.constant(dense), tf.constant(dense[:, 0])], [*tables, bias])
        v = 0.999 * v + 0.001 * np.square(dense)
        for expected, g, moment in ((of_tables, dense, v), (of_bias, dense[:, 0], v[:, 0])):
            least = 0.05 * np.sqrt(np.mean(np.square(g)))
            expected -= 3 * RATE * np.sqrt(1 - 0.999**step) * g / (np.sqrt(moment) + least)
        for table in tables:
            np.testing.assert_allclose(table, of_tables, atol=1e-6)
        np.testing.assert_allclose(bias, of_bias, atol=1e-6)


def test_zero_gradient_changes_nothing():
    bias = variable(np.ones(5), "bias")
    built(Muon(RATE, [0]), bias).apply([tf.zeros(5)], [bias])
    np.testing.assert_array_equal(bias, np.ones(5))


def test_make_optimizer_counts_matrices():
    options = Options.from_json(small_options(n_tokens_vocab=73, optimizer="muon"))
    variables = LanguageModel(options).named_weights()
    optimizer = optimizers.make_optimizer(options, variables)
    numbers = dict(zip(variables, optimizer.n_matrices, strict=True))
    matrices = {name.rpartition("/")[2]: number for name, number in numbers.items() if number}
    ones = ["projection", "W_proj", "high_0_W_carry", "high_0_W_transform", "W_cnn_0", "W_cnn_1"]
    assert matrices == dict.fromkeys(ones, 1) | {"kernel": 4}
    assert len(optimizer.variables) == 2 + len(variables)  # 2: count and rate
    with keras.name_scope("outer"):
        variables = LanguageModel(options).named_weights()
        again = optimizers.make_optimizer(options, variables)
    assert [*again.slots()] == [*optimizer.slots()] and [*variables] == [*numbers]


# --- the update -----------------------------------------------------------------------------------


N = 10


def rates(decay, warmup=0):
    options = dataclasses.replace(
        PRESETS["tiny"], learning_rate=2.0, learning_rate_decay=decay, warmup_steps=warmup
    )
    return [learning_rate(options, step, N) for step in range(1, N + 1)]


@pytest.mark.parametrize("decay", Decay)
@pytest.mark.parametrize("warmup", [0, 1, 3, N])
def test_learning_rate_rises_then_never(decay, warmup):
    found, peak = rates(decay, warmup), max(warmup, 1)
    assert found[:peak] == pytest.approx([2.0 * step / peak for step in range(1, peak + 1)])
    assert all(0 < after <= before for before, after in zip(found[peak - 1 :], found[peak:], strict=False))
    sixth = {Decay.NONE: 2.0, Decay.LINEAR: 1.0, Decay.COSINE: 1.0, Decay.INVERSE_SQRT: 2.0 / 6**0.5}
    assert warmup > 1 or found[5] == pytest.approx(sixth[decay])
    assert decay is not Decay.LINEAR or found[-1] == pytest.approx(2.0 / (N + 1 - peak))


def test_deduplicate_sums_rows_of_the_same_index():
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([5, 2, 5]), tf.constant([9, 1]))
    result = deduplicate(slices)
    assert dict(zip(result.indices.numpy(), result.values.numpy()[:, 0], strict=True)) == {5: 5.0, 2: 2.0}


@pytest.mark.parametrize("clip_norm", [1.0, 100.0])
def test_update_clips_by_the_norm_after_summing_duplicates(clip_norm):
    table, weight = variable(np.zeros((4, 1)), "table"), variable([0.0], "weight")
    optimizer = Adagrad(1.0)
    optimizer.build([table, weight])
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 1]), tf.constant([4, 1]))
    norm, _ = update(optimizer, [slices, tf.constant([4.0])], [table, weight], tf.constant(1.0), clip_norm)
    assert float(norm) == pytest.approx(5.0)
    gradient = 4.0 * min(1.0, clip_norm / 5.0)
    assert weight.numpy()[0] == pytest.approx(-gradient / np.sqrt(1 + gradient**2))


def test_decay_shrinks_updated_weights():
    start = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    names = ("encoder/forward_0/kernel", "softmax/W", "encoder/char_cnn/char_embed", "softmax/b")
    variables = {name: variable(start) for name in names[:3]} | {names[3]: variable(start[0])}
    rows = [None, tf.constant([4, 1]), None, None]
    tf.function(lambda: decay_weights(variables, rows, tf.constant(0.25)), autograph=False)()
    left = np.where(np.isin(range(5), [1, 4]), 0.75, 1.0)[:, None]
    for found, expected in zip(
        variables.values(), (0.75 * start, left * start, start, start[0]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "leaves_rows"),
    [
        (Adagrad(), True),
        (optimizers.keras_optimizer(Optimizer.SGD), True),
        (optimizers.keras_optimizer(Optimizer.RMSPROP), False),
    ],
    ids=["adagrad", "sgd", "rmsprop"],
)
def test_rows_that_changed_are_distinct(optimizer, leaves_rows):
    sparse = tf.IndexedSlices(tf.ones([4, 2]), tf.constant([5, 2, 5, 0]), tf.constant([9, 2]))
    variables = [keras.Variable(np.ones([9, 2], np.float32)) for _ in range(2)]
    optimizer.build(variables)
    _, (rows, everything) = update(optimizer, [sparse, tf.ones([9, 2])], variables, tf.constant(0.1), 1.0)
    assert everything is None
    assert (sorted(rows.numpy()) == [0, 2, 5]) if leaves_rows else rows is None


def test_loss_scale_halves_and_doubles():
    scale = LossScale(2.0)
    assert scale.follow(math.inf) and scale.value == 1.0
    assert not scale.follow(math.nan) and scale.value == 1.0  # that is no overflow
    assert not any(scale.follow(1.0) for _ in range(1999)) and scale.value == 1.0
    scale.follow(1.0)
    assert scale.value == 2.0 and scale.n_good_steps == 0


def test_perplexity_of_infinite_loss_is_finite():
    assert perplexity(math.inf) == perplexity(500.0) == math.exp(25.0)
    assert len(f"{perplexity(500.0):.4f}") == 16
