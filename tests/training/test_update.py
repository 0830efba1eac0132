"""What an update does to weights: rates, clipping, decay, averages."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.options import PRESETS, Decay
from bilm.training.averaging import WeightAverage, averaged
from bilm.training.meter import LossScale, perplexity
from bilm.training.optimizers import Adagrad
from bilm.training.update import decay_weights, deduplicate, learning_rate, touched_rows, update

N = 10


def rates(decay, warmup=0):
    options = dataclasses.replace(
        PRESETS["tiny"], learning_rate=2.0, learning_rate_decay=decay, warmup_steps=warmup
    )
    return [learning_rate(options, step, N) for step in range(1, N + 1)]


@pytest.mark.parametrize("decay", Decay)
@pytest.mark.parametrize("warmup", [0, 1, 3, N])
def test_the_rate_rises_in_the_warm_up_to_the_whole_and_never_again(decay, warmup):
    found, peak = rates(decay, warmup), max(warmup, 1)
    assert found[:peak] == pytest.approx([2.0 * step / peak for step in range(1, peak + 1)])
    assert all(0 < after <= before for before, after in zip(found[peak - 1 :], found[peak:], strict=False))
    sixth = {Decay.NONE: 2.0, Decay.LINEAR: 1.0, Decay.COSINE: 1.0, Decay.INVERSE_SQRT: 2.0 / 6**0.5}
    assert warmup > 1 or found[5] == pytest.approx(sixth[decay])


def variable(values, name="v"):
    return keras.Variable(np.asarray(values, np.float32), name=name)


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
    norm = update(optimizer, [slices, tf.constant([4.0])], [table, weight], tf.constant(1.0), clip_norm)
    assert float(norm) == pytest.approx(5.0)
    gradient = 4.0 * min(1.0, clip_norm / 5.0)
    assert weight.numpy()[0] == pytest.approx(-gradient / np.sqrt(1 + gradient**2))


def test_what_an_update_changes_decays():
    start = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with keras.name_scope("model"):
        variables = [variable(start, name) for name in ("kernel", "W", "char_embed")]
        variables.append(variable(start[0], "bias"))
    rows = [None, tf.constant([4, 1]), None, None]
    tf.function(lambda: decay_weights(variables, rows, tf.constant(0.25)), autograph=False)()
    left = np.where(np.isin(range(5), [1, 4]), 0.75, 1.0)[:, None]
    for found, expected in zip(variables, (0.75 * start, left * start, start, start[0]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "leaves_rows"),
    [(Adagrad(), True), (keras.optimizers.SGD(), True), (keras.optimizers.RMSprop(), False)],
    ids=["adagrad", "sgd", "rmsprop"],
)
def test_rows_that_are_touched(optimizer, leaves_rows):
    sparse = tf.IndexedSlices(tf.ones([4, 2]), tf.constant([5, 2, 5, 0]), tf.constant([9, 2]))
    rows, everything = touched_rows(optimizer, [sparse, tf.ones([9, 2])])
    assert everything is None
    assert (sorted(rows.numpy()) == [0, 2, 5]) if leaves_rows else rows is None


def test_a_scale_of_the_loss_halves_where_it_overflows_and_doubles_after_a_long_time():
    scale = LossScale(2.0)
    assert scale.follow(math.inf) and scale.value == 1.0
    assert not scale.follow(math.nan) and scale.value == 1.0  # that is no overflow
    assert not any(scale.follow(1.0) for _ in range(1999)) and scale.value == 1.0
    scale.follow(1.0)
    assert scale.value == 2.0 and scale.n_good_steps == 0


def test_the_perplexity_of_a_training_that_diverged_can_be_printed():
    assert perplexity(math.inf) == perplexity(500.0) == math.exp(25.0)
    assert len(f"{perplexity(500.0):.4f}") == 16


# --- averages -------------------------------------------------------------------------------------


N_UPDATES = 40
# A kernel all of which changes in every update, and a table of which some rows do.
SHAPES = {"encoder/forward_0/kernel": (4, 3), "softmax/W": (7, 2), "softmax/b": (7,)}


@pytest.mark.parametrize("decay", [0.9, 0.01])
def test_averages_are_those_of_every_update(decay):
    random, variables = np.random.default_rng(0), []
    for name, shape in SHAPES.items():
        variables.append(keras.Variable(random.normal(size=shape).astype(np.float32), name="v"))
        variables[-1]._path = f"model/{name}"
    average = WeightAverage(variables, decay)
    count = tf.function(average.count, autograph=False)
    start = [variable.numpy() for variable in variables]
    expected = [value.astype(np.float64) for value in start]
    for t in range(1, N_UPDATES + 1):
        rows, left = random.choice(6, 2, replace=False), min(decay, t / (9 + t))  # the last row never
        count([None, tf.constant(rows), tf.constant(rows)])
        for k, variable in enumerate(variables):
            new, own = variable.numpy(), rows if k else slice(None)
            new[own] = random.normal(size=new[own].shape)
            variable.assign(new)
            expected[k] = left * expected[k] + (1 - left) * new
        weights = [variable.numpy() for variable in variables]
        if t in (1, 2, 9, N_UPDATES):
            with pytest.raises(KeyError), average.applied():
                for variable, value in zip(variables, expected, strict=True):
                    np.testing.assert_allclose(variable, value, rtol=1e-5, atol=1e-6)
                found = [variable.numpy() for variable in variables]
                raise KeyError  # after which the weights are as before
        for variable, value in zip(variables, weights, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert not np.allclose(found[0], weights[0], atol=1e-3)
    np.testing.assert_array_equal(found[1][6], start[1][6])


def test_a_long_run():
    """Skipped updates in one, however many, as one after the other."""
    values, decay, left = np.float32([[0.0, 1.0], [5.0, -1.0]]), 0.999, np.ones(2)
    for t in range(3, 12_000):
        left *= np.array([t > 8_995, True]) * min(decay, t / (9 + t)) + np.array([t <= 8_995, False])
    found = averaged(values, np.array([8_995, 2]), np.float32([[2.0, 2.0], [2.0, 2.0]]), 11_999, decay)
    np.testing.assert_allclose(found, 2.0 + left[:, None] * (values - 2.0), rtol=1e-5)
