import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import OptionsError
from bilm.layers.scalar_mix import ScalarMix, weight_layers


def layers_of(rows=2, layers=3, words=4, dim=5, seed=0):
    values = np.random.default_rng(seed).normal(2.0, 3.0, (rows, layers, words, dim))
    return values.astype(np.float32)


def test_scalar_mix_equals_equation():
    layers, weights = layers_of(), np.array([0.5, -1.0, 2.0], np.float32)
    layer = ScalarMix(l2_coef=0.25)
    layer(layers)
    layer.layer_weights.assign(weights)
    layer.gamma.assign([3.0])
    shares = np.exp(weights) / np.exp(weights).sum()
    expected = 3.0 * sum(share * layers[:, k] for k, share in enumerate(shares))
    np.testing.assert_allclose(layer(layers), expected, atol=1e-5)
    assert [float(loss) for loss in layer.losses] == pytest.approx([0.25 * (0.25 + 1 + 4)])


def test_layer_norm_leaves_padding_out():
    layers, mask = layers_of(), np.array([[1, 1, 0, 0], [1, 1, 1, 0]])
    mixed = weight_layers("mix", {"lm_embeddings": layers, "mask": mask}, do_layer_norm=True)["weighted_op"]
    expected = 0
    for k in range(3):
        there = layers[:, k][mask == 1]
        expected = expected + (layers[:, k] - there.mean()) / there.std() / 3
    np.testing.assert_allclose(mixed.numpy()[mask == 1], expected[mask == 1], atol=1e-5)
    other = np.where(mask[:, None, :, None], layers, 1e3)
    again = weight_layers("mix", {"lm_embeddings": other, "mask": mask}, do_layer_norm=True)["weighted_op"]
    np.testing.assert_allclose(again.numpy()[mask == 1], mixed.numpy()[mask == 1], atol=1e-5)
    again = weight_layers("mix", {"lm_embeddings": layers, "mask": 5 * mask}, do_layer_norm=True)
    np.testing.assert_array_equal(again["weighted_op"], mixed)
    nothing = {"lm_embeddings": layers, "mask": np.zeros_like(mask)}
    np.testing.assert_array_equal(ScalarMix(do_layer_norm=True)(nothing, mask), mixed)
    assert np.isfinite(weight_layers("mix", nothing, do_layer_norm=True)["weighted_op"]).all()


def test_layer_norm_of_float16_has_the_sums_of_float32():
    layers = layers_of(64, 3, 40, 64)
    exact = ScalarMix(do_layer_norm=True)(layers)
    np.testing.assert_allclose(ScalarMix(do_layer_norm=True, dtype="float16")(layers), exact, atol=0.01)


def test_scalar_mix_takes_initial_weights():
    layers, weights = layers_of(), [0.5, -1.0, 2.0]
    layer = ScalarMix(initial_scalar_parameters=weights)
    other = ScalarMix()
    other(layers)
    other.layer_weights.assign(weights)
    np.testing.assert_array_equal(layer(layers), other(layers))
    with pytest.raises(ValueError, match="axis 1 of input shape to have value 2, but received .*3, 4, 5"):
        ScalarMix(initial_scalar_parameters=[1, 2])(layers)


def test_switches_are_checked():
    for arguments in ({"use_top_only": "no"}, {"do_layer_norm": "no"}):
        output = {"lm_embeddings": np.zeros((1, 2, 3, 4), np.float32), "mask": None}
        for call in (ScalarMix, lambda output=output, **flags: weight_layers("a", output, **flags)):
            with pytest.raises(OptionsError, match="is 'no'; it must be True or False"):
                call(**arguments)


def test_use_top_only_takes_top_layer():
    layers = layers_of()
    mixed = weight_layers("top", {"lm_embeddings": layers, "mask": np.ones((2, 4))}, 1.0, use_top_only=True)
    np.testing.assert_array_equal(mixed.weighted_op, layers[:, -1])
    assert mixed.regularization_op == 0
    assert [weight.name for weight in mixed.layer.weights] == ["ELMo_gamma"]
    both = weight_layers("both", {"lm_embeddings": layers, "mask": np.ones((2, 4))}, None, True, True)
    np.testing.assert_array_equal(both.weighted_op, layers[:, -1])  # as the reference, which takes both


@pytest.mark.parametrize(
    ("layers", "mask", "message"),
    [
        pytest.param(layers_of(layers=2), None, "axis 1 of input shape to have value 3", id="fewer layers"),
        pytest.param(layers_of()[:, 0, 0], None, "expected ndim=4, found ndim=2", id="two dimensions"),
        pytest.param(tf.RaggedTensor.from_tensor(layers_of()), None, "must be a dense tensor", id="ragged"),
        pytest.param(layers_of(), np.ones((2, 3)), r"here \(2, 4\), got \(2, 3\)", id="another mask"),
        pytest.param(layers_of(), [1, 0], r"mask must be .*, got \(2,\)", id="flat mask"),
    ],
)
def test_wrong_shapes_are_refused(layers, mask, message):
    mix = ScalarMix(do_layer_norm=True)
    mix(layers_of(), np.ones((2, 4)))
    with pytest.raises(ValueError, match=message):
        mix(layers, mask=mask)


def test_scalar_mix_is_saved(tmp_path):
    layer = ScalarMix(l2_coef=np.float32(0.1), do_layer_norm=True, initial_scalar_parameters=[1, 2, 3])
    inputs = tf.constant(layers_of())
    eager = layer(inputs)
    assert tuple(eager.shape) == (2, 4, 5)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    sample = keras.Input(batch_shape=inputs.shape, dtype=inputs.dtype)
    model = keras.Model(sample, layer(sample))
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(reloaded(inputs), eager, atol=1e-6)
