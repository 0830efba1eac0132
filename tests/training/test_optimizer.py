import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.training.optimizer import Adagrad, deduplicate, update


def variable(values, name="v"):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def test_dense_step_by_hand():
    weight = variable([1.0, -2.0])
    optimizer = Adagrad(learning_rate=0.2)
    optimizer.build([weight])
    optimizer.apply([tf.constant([3.0, 0.0])], [weight])
    np.testing.assert_allclose(optimizer.accumulator(weight), [10.0, 1.0])
    np.testing.assert_allclose(weight, [1.0 - 0.2 * 3.0 / np.sqrt(10.0), -2.0], rtol=1e-6)


def test_sparse_equals_dense_and_touches_only_its_rows():
    random = np.random.default_rng(0)
    start = random.normal(size=(7, 3))
    dense, sparse = variable(start, "dense"), variable(start, "sparse")
    optimizer = Adagrad()
    optimizer.build([dense, sparse])
    for _ in range(4):
        indices = random.integers(0, 5, 6)  # rows 5 and 6 never
        slices = tf.IndexedSlices(
            tf.constant(random.normal(size=(6, 3)), tf.float32), tf.constant(indices), tf.constant([7, 3])
        )
        slices = deduplicate(slices)
        optimizer.apply([tf.convert_to_tensor(slices), slices], [dense, sparse])
    np.testing.assert_allclose(sparse, dense, atol=1e-6)
    np.testing.assert_allclose(optimizer.accumulator(sparse), optimizer.accumulator(dense), atol=1e-6)
    assert np.array_equal(sparse[5:], start[5:].astype(np.float32))


def test_deduplicate_sums_rows_of_the_same_index():
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([5, 2, 5]), tf.constant([9, 1]))
    result = deduplicate(slices)
    assert dict(zip(result.indices.numpy(), result.values.numpy()[:, 0], strict=True)) == {5: 5.0, 2: 2.0}


@pytest.mark.parametrize("clip_norm", [1.0, 100.0])
def test_update_clips_by_the_norm_after_summing_duplicates(clip_norm):
    table, weight = variable(np.zeros((4, 1)), "table"), variable([0.0], "weight")
    optimizer = Adagrad(learning_rate=1.0)
    optimizer.build([table, weight])
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 1]), tf.constant([4, 1]))
    norm = update(optimizer, [slices, tf.constant([4.0])], [table, weight], tf.constant(1.0), clip_norm)
    assert float(norm) == pytest.approx(5.0)
    gradient = 4.0 * min(1.0, clip_norm / 5.0)
    assert weight.numpy()[0] == pytest.approx(-gradient / np.sqrt(1 + gradient**2))


def test_config_round_trip():
    optimizer = Adagrad(0.3, 2.0, 0.01)
    again = Adagrad.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
