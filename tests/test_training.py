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
STEPS = 3  # of a window: soon compiled


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


@pytest.mark.parametrize("changes", [{}, {"sample_softmax": False, "variational_dropout": False}])
def test_loss_falls(changes):
    trainer, reports = make(**changes), []
    train(trainer, batches(), 100, callbacks=[reports.append])
    losses = [report.loss for report in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert [report.step for report in reports] == list(range(1, 101))
    assert reports[0].n_tokens == 4 * STEPS and reports[-1].n_done == reports[-1].n_steps == 100


def test_two_replicas_equal_one_of_twice_the_batch():
    # In a process of its own: logical devices can only be made before TensorFlow starts.
    script = [sys.executable, "-m", "tests.two_replicas", str(GOLDEN)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=GOLDEN.parents[2], check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["losses"][0] == pytest.approx(result["losses"][1], rel=1e-5)
    assert result["norms"][0] == pytest.approx(result["norms"][1], rel=1e-5)
    assert result["tokens"][0] == result["tokens"][1] == 16
    assert result["weights"] < 1e-5 and result["accumulators"] < 1e-4 and result["states"] < 1e-5
    assert np.all(np.isfinite(result["sampled"]))
