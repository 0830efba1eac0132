"""With XLA, without it, and where it fails: the same numbers."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bilm.backend import xla
from bilm.backend.lstm_cell import Clips
from bilm.backend.lstm_window import lstm_window
from bilm.backend.on_tensorflow import run_lstm
from bilm.backend.settings import portably, without_xla
from tests.layers.test_equations import make


def gradients_of(layer):
    """A function of a graph: outputs, state and the gradients of all that is given."""
    inputs, state, weights = make(scale=0.5)
    sources = [inputs, *state, *weights]

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs, after = layer(inputs, state, weights, Clips(0.9, 0.8))
            loss = sum(tf.reduce_sum(part * part) for part in (outputs, *after))
        return outputs, after, tape.gradient(loss, sources)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("layer", [lstm_window, run_lstm])
def test_xla_gives_equal_values_and_gradients(layer):
    compiled = gradients_of(layer)
    with_xla = compiled()
    with without_xla():
        plain = gradients_of(layer)
        without = plain()
    graphs = [str(run.get_concrete_function().graph.as_graph_def()) for run in (compiled, plain)]
    assert ["_XlaMustCompile" in graph or 'op: "Xla' in graph for graph in graphs] == [True, False]
    for one, other in zip(tf.nest.flatten(without), tf.nest.flatten(with_xla), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_compiled_runs_outside_graph():
    arguments = *make(projection=False), Clips()
    expected, _ = lstm_window(*arguments)
    with without_xla():
        for layer in (lstm_window, run_lstm):
            np.testing.assert_allclose(layer(*arguments)[0], expected, atol=1e-6)


def test_blocks_without_xla_end_as_they_began():
    with without_xla():
        with without_xla():
            pass
        assert not xla.compiles()
    assert not portably(xla.compiles)
    assert xla.compiles()


def test_failing_xla_warns_once(monkeypatch, caplog):
    """As where libdevice is missing."""
    function = tf.function

    def compiling(*args, jit_compile=None, **settings):
        def fail(*_):
            message = "libdevice not found at ./libdevice.10.bc\n\n[Op:__inference_step]"
            raise tf.errors.InternalError(None, None, message)

        return fail if jit_compile else function(*args, **settings)

    monkeypatch.setattr(tf, "function", compiling)
    monkeypatch.setattr(xla, "_works", functools.cache(xla._works.__wrapped__))
    assert not xla.compiles()
    assert not xla.compiles()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (
        f"XLA cannot compile on this {xla.device_type()} (libdevice not found at ./libdevice.10.bc)"
        in caplog.text
    )
    assert "--no-xla" in caplog.text
    gradients_of(lstm_window)()
