"""Gradients written by hand: the same on every way to a gradient, and gone with their graph."""

import gc
import importlib
import weakref
from functools import partial

import pytest
import tensorflow as tf

from bilm.backend.gradients import with_gradient

X, Y = tf.constant([1.0, 2.0]), tf.constant([3.0, 5.0])


def function(x, y):
    """Returns x y and x + y, with gradients that only this backward pass gives."""

    def forward(x, y):
        return (x * y, x + y), (2.0, [None, y, x - y])

    def backward(kept, d_product, d_sum):
        factor, (nothing, y, difference) = kept
        assert nothing is None
        return [factor * d_product * y, d_sum * difference]

    return with_gradient(forward, backward, x, y)


def gradients(function, x, y):
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        product, total = function(x, y)
        loss = tf.reduce_sum(product + 10.0 * total)
    return tape.gradient(loss, [x, y])


def in_loop(x, y):
    return tf.while_loop(lambda i, *_: i < 1, lambda i, *_: (i + 1, *function(x, y)), (0, x, y))[1:]


def loaded(directory):
    module = tf.Module()
    module.call = tf.function(function, input_signature=[tf.TensorSpec([2])] * 2)
    tf.saved_model.save(module, directory)
    return tf.saved_model.load(directory).call


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(lambda _: gradients(function, X, Y), id="eager"),
        pytest.param(lambda _: tf.function(gradients)(function, X, Y), id="tape in a graph"),
        pytest.param(lambda _: gradients(tf.function(function), X, Y), id="tape around a graph"),
        pytest.param(lambda _: gradients(tf.function(in_loop), X, Y), id="loop of a graph"),
        pytest.param(lambda path: gradients(loaded(path), X, Y), id="SavedModel"),
    ],
)
def test_gradient_is_the_one_given(way, tmp_path):
    d_x, d_y = way(str(tmp_path / "saved"))
    assert d_x.numpy().tolist() == [6.0, 10.0] and d_y.numpy().tolist() == [-20.0, -30.0]


@pytest.mark.slow
def test_gradient_keeps_no_graph():
    run = tf.function(gradients)
    graph = weakref.ref(run.get_concrete_function(function, X, Y).graph)
    assert graph() is not None
    del run
    gc.collect()
    assert graph() is None


def test_module_can_be_loaded_anew():
    """As notebooks do after an upgrade; TensorFlow keeps the names of gradients."""
    for _ in range(2):
        make = importlib.reload(importlib.import_module("bilm.backend.gradients")).with_gradient
        same = partial(make, lambda x: (x, ()), lambda _, upstream: [upstream])
        tf.function(same)(X)
