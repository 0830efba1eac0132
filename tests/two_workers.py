"""One worker of two on loopback, or a single process with twice the rows; writes what it has learned.

    python -m tests.two_workers OUT.npz FILE...

``TF_CONFIG`` says which worker it is; without it the process takes the rows of all. Worker k reads its
own part of the text.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm.data.pipeline import TrainingBatch, training_batches
from bilm.data.stream import Order
from bilm.models.language_model import LanguageModel
from bilm.run_directory.directory import RunDirectory
from bilm.training.trainer import Trainer, training_steps
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.weights.transfer import named_weights

GOLDEN = Path(__file__).parent / "golden" / "char"
N_WORKERS, N_STEPS = 2, 4


def main(outfile: str, files: list[str]) -> None:
    """Take a few steps and write the weights, and what the workers told each other."""
    worker = Worker.from_environment()
    alone = worker.n_workers == 1
    strategy = tf.distribute.get_strategy() if alone else tf.distribute.MultiWorkerMirroredStrategy()
    step0 = RunDirectory.open(GOLDEN / "step0")
    options = dataclasses.replace(
        step0.options,
        batch_size=4,
        accumulate=N_WORKERS if alone else 1,
        unroll_steps=2,
        sample_softmax=False,
        weight_decay=0.1,
        weight_averaging=0.9,
    )
    with strategy.scope():
        model = LanguageModel(options)
    trainer = Trainer(model, strategy=strategy, worker=worker)
    step0.restore(model, trainer.optimizer)
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt", 50)
    parts = range(N_WORKERS) if alone else [worker.index]
    orders = [Order(shuffle=True, seed=3, part=k, n_parts=N_WORKERS) for k in parts]
    streams = [training_batches(files, vocabulary, options, order) for order in orders]
    joined = (
        TrainingBatch(sum((batch.parts for batch in step), ()), step[0].position)
        for step in zip(*streams, strict=True)
    )
    reports = list(training_steps(trainer, joined, N_STEPS))
    named = named_weights(model)
    arrays = {f"weight {name}": weight.numpy() for name, weight in named.items()}
    with trainer.average.applied():
        arrays |= {f"average {name}": weight.numpy() for name, weight in named.items()}
    states = tf.nest.flatten(trainer.workers.gather_states(trainer.states))
    arrays |= {f"state {i}": state.numpy() for i, state in enumerate(states)}
    arrays["losses"] = [report.loss for report in reports]
    arrays["norms"] = [report.gradient_norm for report in reports]
    arrays["n_tokens"] = reports[-1].n_tokens
    arrays["texts"] = trainer.workers.gather_json("worker" * (1 + worker.index))
    arrays["any"] = trainer.workers.any(worker.index == 1)
    np.savez(outfile, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
