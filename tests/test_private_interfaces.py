"""Names of libraries that are not promised: where a release takes one away, the test of that name fails."""

import operator

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from bilm.backend.keras_backend import infers_shapes, is_outermost

optimizer = keras.optimizers.Adagrad()
optimizer.build([keras.Variable([1.0])])

PRIVATE = {
    optimizer: ["_get_variable_index", "_learning_rate", "_accumulators"],
    tf.distribute.get_strategy(): ["experimental_local_results", "extended.update"],
    tf.distribute.ReplicaContext: ["merge_call"],
    tf: ["__internal__.record_gradient"],
    tf_config: ["is_op_determinism_enabled", "disable_op_determinism"],
}


@pytest.mark.parametrize(
    ("owner", "name"), [pytest.param(owner, name, id=name) for owner in PRIVATE for name in PRIVATE[owner]]
)
def test_library_has_private_name(owner, name):
    assert operator.attrgetter(name)(owner) is not None


def test_functions_take_an_attribute_against_inlining():
    function = tf.function(tf.identity, experimental_attributes={"_noinline": True})
    assert function.get_concrete_function(1.0).function_def.attr["_noinline"].b


class Asked(keras.layers.Layer):
    """Notes what is asked during its calls."""

    def __init__(self):
        super().__init__()
        self.answers = []

    def call(self, inputs):
        self.answers.append((is_outermost(self), infers_shapes()))
        return inputs


def test_keras_tells_outermost_layer_and_inference_of_shapes():
    layer, inputs = Asked(), tf.zeros([1, 1])
    layer(inputs)
    keras.Sequential([layer])(inputs)
    layer.compute_output_spec(keras.KerasTensor((1, 1)))
    assert [layer.answers[0], *layer.answers[-2:]] == [(True, False), (False, False), (True, True)]


def test_ray_data_takes_a_context_for_a_block():
    ray_data = pytest.importorskip("ray.data")
    before = ray_data.DataContext.get_current()
    with ray_data.DataContext.current(before.copy()):
        assert ray_data.DataContext.get_current() is not before
    assert ray_data.DataContext.get_current() is before
