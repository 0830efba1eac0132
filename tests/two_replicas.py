"""Two replicas on logical CPU devices equal one of twice the batch: `python -m tests.two_replicas GOLDEN`."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm.data.pipeline import training_batches
from bilm.data.stream import Order
from bilm.models.language_model import LanguageModel
from bilm.run_directory.directory import RunDirectory
from bilm.training.trainer import Trainer, training_steps
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.weights.transfer import named_weights

golden = Path(sys.argv[1])
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# One for all runs: the collective operations of two strategies in one process collide.
mirrored = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def run(batch_size, n_replicas, sampled):
    """The reports of four steps, and the weights, averages and accumulators by name, and the states."""
    step0 = RunDirectory.open(golden / "step0")
    options = dataclasses.replace(
        step0.options,
        batch_size=batch_size,
        unroll_steps=2,
        sample_softmax=sampled,
        weight_decay=0.1,
        weight_averaging=0.9,
    )
    strategy = mirrored if n_replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = LanguageModel(options)
    trainer = Trainer(model, strategy=strategy)
    step0.restore(model, trainer.optimizer)
    vocabulary, text = load_vocabulary(golden / "vocab.txt", 50), [golden / "train.txt"]
    batches = training_batches(text, vocabulary, options, Order(), n_replicas=n_replicas)
    reports = list(training_steps(trainer, batches, 4))
    named, arrays = named_weights(model), {}
    for name, weight in named.items():
        arrays[name] = weight.numpy()
        arrays[f"accumulator {name}"] = trainer.optimizer.accumulator(weight).numpy()
    with trainer.average.applied():
        arrays |= {f"average {name}": weight.numpy() for name, weight in named.items()}
    states = tf.nest.flatten(trainer.states)
    for i in range(8):
        arrays[f"state {i}"] = np.concatenate(states[i::8])
    return reports, arrays


(two, arrays), (one, expected) = run(4, 2, False), run(8, 1, False)
for report, other in zip(two, one, strict=True):
    np.testing.assert_allclose(report.loss, other.loss, rtol=1e-5)
    np.testing.assert_allclose(report.gradient_norm, other.gradient_norm, rtol=1e-5)
assert two[-1].n_tokens == one[-1].n_tokens == 16
for name, array in expected.items():
    atol = 1e-4 if name.startswith("accumulator") else 1e-5
    np.testing.assert_allclose(arrays[name], array, rtol=0, atol=atol, err_msg=name)
assert all(report.is_finite for report in run(4, 2, True)[0])
