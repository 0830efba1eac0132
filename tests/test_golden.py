"""Twelve steps of training as bilm-tf (TensorFlow 1.15) took them; see `tests/golden/README.md`.

Batches are compared in data/test_pipeline.py, perplexities and dumped weights in cli/test_golden.py.
"""

import contextlib
import json
from functools import cache

import numpy as np
import pytest
import tensorflow as tf

from bilm.backend.settings import without_xla
from bilm.data.pipeline import training_batches
from bilm.data.stream import Order
from bilm.models.language_model import LanguageModel
from bilm.run_directory.directory import RunDirectory
from bilm.training.trainer import Trainer, training_steps
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.weights.names import ADAGRAD
from tests.helpers import GOLDEN, VARIANTS, restore

QUICK = ("char", "word-shared")
each_variant = pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in VARIANTS]
)


@cache
def expected(variant):
    return json.loads((GOLDEN / variant / "expected.json").read_text())


@cache
def trained(variant, xla):
    """Twelve steps from `step0`, as the reference took them."""
    with contextlib.nullcontext() if xla else without_xla():
        return trained_here(variant)


def trained_here(variant):
    run = RunDirectory.open(GOLDEN / variant / "step0")
    options, cnn = run.options, run.options.char_cnn
    vocabulary = load_vocabulary(GOLDEN / variant / "vocab.txt", cnn and cnn.max_characters_per_token)
    trainer = Trainer(LanguageModel(options))
    step = restore(run, trainer.model, trainer.optimizer)
    batches = training_batches([GOLDEN / variant / "train.txt"], vocabulary, options, Order())
    reports = list(training_steps(trainer, batches, 12, step))
    return trainer, reports, run.names


@pytest.mark.parametrize("xla", [True, pytest.param(False, marks=pytest.mark.slow)])
@each_variant
def test_losses_and_gradient_norms(variant, xla):
    _, reports, _ = trained(variant, xla)
    for report, golden in zip(reports, expected(variant)["training_trajectory"], strict=True):
        assert report.step == golden["step"]
        assert report.loss == pytest.approx(golden["loss"], rel=1e-5)
        assert report.direction_losses == pytest.approx(golden["direction_losses"], rel=1e-5)
        assert report.gradient_norm == pytest.approx(golden["grad_global_norm_before_clip"], rel=1e-5)


@each_variant
def test_variables_and_accumulators(variant):
    trainer, _, names = trained(variant, True)
    golden = np.load(GOLDEN / variant / "final_variables.npz")
    assert {name.tf1 for name in names} == {
        k for k in golden if k.startswith("lm/") and not k.endswith(ADAGRAD)
    }
    variables = trainer.model.named_weights()
    for name in names:
        np.testing.assert_allclose(variables[name.own], golden[name.tf1], atol=1e-5, rtol=0, err_msg=name.own)
        accumulator = trainer.optimizer.accumulator(variables[name.own])
        # Accumulators reach hundreds, where one unit in the last place of float32 is 1.5e-5.
        np.testing.assert_allclose(
            accumulator, golden[name.tf1 + ADAGRAD], atol=1e-5, rtol=2e-7, err_msg=name.own
        )


@each_variant
def test_lstm_states(variant):
    trainer, _, _ = trained(variant, True)
    golden = np.load(GOLDEN / variant / "final_lstm_state.npz")
    states = tf.nest.flatten(trainer.states)
    assert len(states) == len(golden.files)
    for i, state in enumerate(states):
        np.testing.assert_allclose(state, golden[f"state_{i}"], atol=1e-5, rtol=0)
