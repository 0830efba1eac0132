"""Four steps of training, by one process, two replicas or one of two workers; writes what it has learned.

    python -m tests.together OUT.npz KIND FILE...

``KIND`` is ``alone``, ``replicas``, on logical devices, or ``worker``, of which ``TF_CONFIG`` says which it
is. Each half of the rows is of its own part of the text.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from bilm.data.pipeline import TrainingBatch, training_batches
from bilm.data.stream import Order
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.training.trainer import Trainer, training_steps
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import load_vocabulary
from tests.helpers import VOCAB, small_options

REGULARIZED = {"dropout": 0.1, "weight_decay": 0.1}


def strategy_of(kind):
    if kind == "worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "alone":
        return tf.distribute.get_strategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def take_steps(kind, files, strategy, worker, is_sampled):
    n_times = 1 + is_sampled  # which two replicas do, and accumulate
    changes = {"accumulate": 2 if kind == "alone" else n_times, "n_tokens_vocab": 73, "lstm": {"n_layers": 1}}
    options = Options.from_json(small_options(**REGULARIZED, **changes, sample_softmax=is_sampled))
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = LanguageModel(options)
    trainer = Trainer(model, strategy=strategy, worker=worker, seed=5)
    vocabulary = load_vocabulary(VOCAB, 20)
    parts = [worker.index] if kind == "worker" else [0, 1]
    orders = [Order(shuffle=True, seed=3, part=part, n_parts=2) for part in parts]
    streams = [training_batches(files, vocabulary, options, order) for order in orders]
    joined = (
        TrainingBatch(sum((batch.parts for batch in step), ()) * n_times, step[0].position)
        for step in zip(*streams, strict=True)
    )
    return trainer, list(training_steps(trainer, joined, 4))


def main(outfile, kind, files):
    worker, strategy = Worker.from_environment(), strategy_of(kind)
    trainer, reports = take_steps(kind, files, strategy, worker, is_sampled=False)
    arrays = {"losses": [report.loss for report in reports], "n_tokens": reports[-1].n_tokens}
    arrays["norms"] = [report.gradient_norm for report in reports]
    named = trainer.model.named_weights()
    for name, weight in named.items():
        arrays[name] = weight.numpy()
        arrays[f"accumulator {name}"] = trainer.optimizer.accumulator(weight).numpy()
    states = tf.nest.flatten(trainer.workers.gather_states(trainer.states))
    arrays |= {f"state {i}": state.numpy() for i, state in enumerate(states)}
    if kind == "worker":
        assert trainer.workers.gather_json("x" * (1 + worker.index)) == ["x", "xx"]
        assert trainer.workers.any(worker.index == 1)
        assert trainer.workers.of_chief(np.float32([worker.index + 1])).tolist() == [1]
    if kind == "replicas":
        trainer, reports = take_steps(kind, files, strategy, worker, is_sampled=True)
        assert all(report.is_finite for report in reports)
        drawn = {ids.tobytes() for replica in trainer._negatives(1) for ids, _ in replica}
        assert len(drawn) == 4  # for two replicas and directions
    np.savez(outfile, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
