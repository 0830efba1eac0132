import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.training.optimizer import Adagrad, decay_weights, touched_rows


def test_what_an_update_changes_decays():
    start = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    names = ("kernel", "softmax/W", "char_embed", "bias")
    variables = [keras.Variable(start if name != "bias" else start[0], name="v") for name in names]
    for variable, name in zip(variables, names, strict=True):
        variable._path = f"model/{name}"
    rows = [None, tf.constant([4, 1]), None, None]
    tf.function(lambda: decay_weights(variables, rows, tf.constant(0.25)), autograph=False)()
    kernel, table, characters, bias = (variable.numpy() for variable in variables)
    np.testing.assert_allclose(kernel, 0.75 * start, rtol=1e-6)
    np.testing.assert_allclose(table[[1, 4]], 0.75 * start[[1, 4]], rtol=1e-6)
    np.testing.assert_array_equal(table[[0, 2, 3]], start[[0, 2, 3]])
    np.testing.assert_array_equal(characters, start)
    np.testing.assert_array_equal(bias, start[0])


@pytest.mark.parametrize(
    ("optimizer", "leaves_rows"),
    [(Adagrad(), True), (keras.optimizers.SGD(), True), (keras.optimizers.RMSprop(), False)],
)
def test_rows_that_are_touched(optimizer, leaves_rows):
    sparse = tf.IndexedSlices(tf.ones([4, 2]), tf.constant([5, 2, 5, 0]), tf.constant([9, 2]))
    rows, everything = touched_rows(optimizer, [sparse, tf.ones([9, 2])])
    assert everything is None
    assert (sorted(rows.numpy()) == [0, 2, 5]) if leaves_rows else rows is None
