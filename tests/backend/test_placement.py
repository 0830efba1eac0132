"""Where a model can run."""

import os

import pytest
import tensorflow as tf

from bilm.backend import keras_backend as placement
from bilm.backend import on_tensorflow
from bilm.errors import OptionsError, ProcessError
from bilm.layers.scalar_mix import weight_layers


def test_graphs_of_tensorflow_1_are_refused_in_one_line():
    """Other calls are in the table of docs/migrating.md."""
    with tf.Graph().as_default():
        layers = tf.compat.v1.placeholder(tf.float32, (2, 3, 4, 5))
        with pytest.raises(ProcessError, match="needs eager TensorFlow 2: leave out placeholders"):
            weight_layers("input", {"lm_embeddings": layers, "mask": None})


def test_a_function_is_no_such_graph():
    tf.function(on_tensorflow.require_ready)()
    tf.data.Dataset.range(1).map(lambda number: (on_tensorflow.require_ready(), number)[1])


def test_a_fork_is_noticed(monkeypatch):
    home = placement.HomeProcess()
    home.require()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(ProcessError, match="spawn"):
        home.require()


def test_devices():
    n_gpus = len(tf.config.list_logical_devices("GPU"))
    for number in (n_gpus, -2):
        with pytest.raises(OptionsError, match=f"cuda_device is {number}; TensorFlow finds {n_gpus} GPUs"):
            placement.on_device(number)
    with placement.on_device(-1):
        assert "CPU" in tf.Variable(1.0).device
    with placement.on_device(None):
        tf.constant(1.0)
