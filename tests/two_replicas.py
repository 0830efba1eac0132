"""Two replicas on logical CPU devices against one of twice the batch; prints one JSON object."""

import dataclasses
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bilm.data.pipeline import training_batches
from bilm.data.position import Order
from bilm.models.language_model import LanguageModel
from bilm.run_directory.directory import RunDirectory
from bilm.training.optimizers import Muon
from bilm.training.trainer import Trainer, training_steps
from bilm.training.update import update
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.weights.transfer import named_weights

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

golden = Path(sys.argv[1])
# One for all runs: the collective operations of two strategies in one process collide.
mirrored = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def snapshot(model):
    return {name: weight.numpy() for name, weight in named_weights(model).items()}


def furthest(one, other):
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def run(batch_size, n_replicas, sampled):
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
    batches = training_batches(
        [golden / "train.txt"],
        load_vocabulary(golden / "vocab.txt", 50),
        options,
        Order(1),
        n_replicas=n_replicas,
    )
    expected, reports = snapshot(model), []
    for report in training_steps(trainer, batches, 4):
        reports.append(report)
        weights, left = snapshot(model), min(0.9, report.step / (9 + report.step))
        expected = {name: left * expected[name] + (1 - left) * weights[name] for name in weights}
    with trainer.average.applied():
        apart = furthest(snapshot(model), expected)
    accumulators = {n: trainer.optimizer.accumulator(w).numpy() for n, w in named_weights(model).items()}
    states = tf.nest.flatten(trainer.states)
    replicas = (
        [np.concatenate(pair) for pair in zip(states[:8], states[8:], strict=True)]
        if n_replicas > 1
        else states
    )
    return reports, weights, accumulators, replicas, apart


def rows_and_matrix(strategy):
    """A table and a matrix after steps in which each replica, or the only one, has gradients of its own."""
    parts = 2 if strategy is mirrored else 1
    with strategy.scope():
        table = keras.Variable(np.ones((6, 2), np.float32), name="char_embed")
        matrix = keras.Variable(np.ones((3, 2), np.float32), name="matrix")
        optimizer = Muon()
        optimizer.build([table, matrix])

    @tf.function
    def step(indices, values):
        def of_replica():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            own = slice(None) if parts == 1 else slice(3 * replica, 3 * replica + 3)
            gradient = tf.IndexedSlices(values[own] / (2 / parts), indices[own], tf.constant([6, 2]))
            of_matrix = tf.reduce_mean(tf.reshape(values[own], (-1, 3, 2)), axis=0)
            update(optimizer, [gradient, of_matrix], [table, matrix], tf.constant(0.01), 10.0)

        strategy.run(of_replica)

    random = np.random.default_rng(0)
    for _ in range(5):
        step(tf.constant(random.integers(0, 5, 6)), tf.constant(random.normal(size=(6, 2)), tf.float32))
    found = [table, *optimizer.moments(table), matrix]
    return {i: variable.numpy().astype(np.float32) for i, variable in enumerate(found)}


two, one = run(4, 2, False), run(8, 1, False)
sampled = run(4, 2, True)
sys.stdout.write(
    json.dumps(
        {
            "losses": [[r.loss for r in reports] for reports in (two[0], one[0])],
            "norms": [[r.gradient_norm for r in reports] for reports in (two[0], one[0])],
            "tokens": [two[0][-1].n_tokens, one[0][-1].n_tokens],
            "weights": furthest(two[1], one[1]),
            "accumulators": furthest(two[2], one[2]),
            "states": max(float(np.abs(a - b).max()) for a, b in zip(two[3], one[3], strict=True)),
            "muon": furthest(rows_and_matrix(mirrored), rows_and_matrix(tf.distribute.get_strategy())),
            "averages": [two[4], one[4], sampled[4]],
            "sampled": [r.loss for r in sampled[0]],
        }
    )
)
