import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bilm.batches import length_buckets, training_batches
from bilm.checkpoint import RunDirectory
from bilm.language_model import LanguageModel
from bilm.training import Trainer, train
from bilm.vocab import load_vocabulary
from bilm.weights.transfer import named_weights

GOLDEN = Path(__file__).parent / "golden" / "char"
STEPS = 5  # of a window: soon compiled


def make(run=None, **changes):
    """A trainer on the golden text, with dropout and a sampled softmax unless told otherwise."""
    options = RunDirectory.open(GOLDEN / "step0").options
    options = dataclasses.replace(
        options, **({"dropout": 0.2, "sample_softmax": True, "unroll_steps": STEPS} | changes)
    )
    trainer = Trainer(LanguageModel(options), length_buckets(50, 4), seed=5)
    (run or RunDirectory.open(GOLDEN / "step0")).restore(trainer.model, trainer.optimizer)
    return trainer


def batches(start=0):
    stream = training_batches(
        [GOLDEN / "train.txt"],
        load_vocabulary(GOLDEN / "vocab.txt", 50),
        batch_size=4,
        unroll_steps=STEPS,
        bidirectional=True,
        max_filter_width=4,
        shuffle=False,
    )
    for _ in range(start):
        next(stream)
    return stream


def weights(trainer):
    return {name: weight.numpy() for name, weight in named_weights(trainer.model).items()}


def test_same_seed_same_weights():
    first, second = make(), make()
    for trainer in (first, second):
        train(trainer, batches(), 3)
    for name, weight in weights(first).items():
        np.testing.assert_array_equal(weights(second)[name], weight, err_msg=name)


def test_save_and_restore_go_on_as_if_nothing_happened(tmp_path):
    whole = make()
    train(whole, batches(), 5)

    first = make()
    train(first, batches(), 3)
    golden = RunDirectory.open(GOLDEN / "step0")
    run = RunDirectory.create(tmp_path / "run", first.options, load_vocabulary(GOLDEN / "vocab.txt"))
    run.save(first.model, first.optimizer, 3, 50.0)
    second = make(RunDirectory.open(tmp_path / "run"))
    assert weights(second).keys() == {name.own for name in golden.names}
    second.states = first.states  # a checkpoint does not hold them
    train(second, batches(3), 2, first_step=3)
    for name, weight in weights(whole).items():
        np.testing.assert_array_equal(weights(second)[name], weight, err_msg=name)


@pytest.mark.parametrize("changes", [{}, {"sample_softmax": False}, {"variational_dropout": False}])
def test_loss_falls(changes):
    trainer, reports = make(**changes), []
    train(trainer, batches(), 60, callbacks=[reports.append])
    losses = [report.loss for report in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert [report.step for report in reports] == list(range(1, 61))
    assert reports[0].n_tokens == 4 * STEPS and reports[-1].n_done == reports[-1].n_steps == 60


TWO_REPLICAS = """
import dataclasses, json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from bilm.batches import length_buckets, training_batches
from bilm.checkpoint import RunDirectory
from bilm.language_model import LanguageModel
from bilm.training import Trainer, train
from bilm.vocab import load_vocabulary
from bilm.weights.transfer import named_weights

golden = Path(sys.argv[1])
# One for all runs: the collective operations of two strategies in one process collide.
mirrored = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])


def run(batch_size, n_replicas, sampled):
    step0 = RunDirectory.open(golden / "step0")
    options = dataclasses.replace(step0.options, batch_size=batch_size, unroll_steps=2, sample_softmax=sampled)
    strategy = mirrored if n_replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = LanguageModel(options)
    trainer = Trainer(model, length_buckets(50, 4), strategy=strategy)
    step0.restore(model, trainer.optimizer)
    batches = training_batches(
        [golden / "train.txt"], load_vocabulary(golden / "vocab.txt", 50), batch_size=batch_size,
        unroll_steps=2, bidirectional=True, max_filter_width=4, shuffle=False, n_replicas=n_replicas,
    )
    reports = []
    train(trainer, batches, 4, 0, [reports.append])
    weights = {name: weight.numpy() for name, weight in named_weights(model).items()}
    accumulators = {n: trainer.optimizer.accumulator(w).numpy() for n, w in named_weights(model).items()}
    states = tf.nest.flatten(trainer.states)
    replicas = [np.concatenate(pair) for pair in zip(states[:8], states[8:])] if n_replicas > 1 else states
    return reports, weights, accumulators, replicas


def furthest(one, other):
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


two, one = run(4, 2, False), run(8, 1, False)
sampled = run(4, 2, True)
print(json.dumps({
    "losses": [[r.loss for r in reports] for reports in (two[0], one[0])],
    "norms": [[r.gradient_norm for r in reports] for reports in (two[0], one[0])],
    "tokens": [two[0][-1].n_tokens, one[0][-1].n_tokens],
    "weights": furthest(two[1], one[1]),
    "accumulators": furthest(two[2], one[2]),
    "states": max(float(np.abs(a - b).max()) for a, b in zip(two[3], one[3])),
    "sampled": [r.loss for r in sampled[0]],
}))
"""


def test_two_replicas_equal_one_of_twice_the_batch():
    # In a process of its own: logical devices can only be made before TensorFlow starts.
    script = [sys.executable, "-c", TWO_REPLICAS, str(GOLDEN)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=GOLDEN.parents[2], check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["losses"][0] == pytest.approx(result["losses"][1], rel=1e-5)
    assert result["norms"][0] == pytest.approx(result["norms"][1], rel=1e-5)
    assert result["tokens"][0] == result["tokens"][1] == 16
    assert result["weights"] < 1e-5 and result["accumulators"] < 1e-4 and result["states"] < 1e-5
    assert np.all(np.isfinite(result["sampled"]))
