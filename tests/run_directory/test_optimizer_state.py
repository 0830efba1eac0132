"""Adam's and Muon's state in a checkpoint: kept, taken over from Keras's, carried to another vocabulary."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.models.language_model import LanguageModel
from bilm.options import Optimizer, Options
from bilm.run_directory.directory import RunDirectory
from bilm.training.optimizers import make_optimizer
from bilm.training.update import update
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.transfer import Remapping
from tests.helpers import VOCAB, small_options

ADAM = dataclasses.replace(
    Options.from_json(small_options(n_tokens_vocab=73)), optimizer=Optimizer.ADAM, learning_rate=0.01
)
MUON = dataclasses.replace(ADAM, optimizer=Optimizer.MUON)


def trained(options, make=make_optimizer, n_steps=3):
    """A small model after some steps with gradients of a few rows."""
    keras.utils.set_random_seed(1)
    model = LanguageModel(options)
    optimizer = make(options)
    optimizer.build(model.trainable_variables)
    random = np.random.default_rng(0)
    for _ in range(n_steps):
        gradients = [
            tf.IndexedSlices(
                tf.constant(random.normal(size=(4, *variable.shape[1:])), tf.float32),
                tf.constant(random.choice(73, 4, replace=False)),
                tf.constant(variable.shape),
            )
            if variable.path.split("/", 1)[1].startswith("softmax/")
            else tf.constant(random.normal(size=variable.shape), tf.float32)
            for variable in model.trainable_variables
        ]
        update(optimizer, gradients, model.trainable_variables, tf.constant(0.01), 10.0)
    return model, optimizer


@pytest.fixture(params=[ADAM, MUON], ids=["adam", "muon"])
def saved(request, tmp_path):
    model, optimizer = trained(request.param)
    run = RunDirectory.create(tmp_path / "run", request.param, Vocabulary(VOCAB))
    run.save(model, optimizer, 3, 50.0)
    return run, model, optimizer


def restored(run, options, remapping=None):
    model = LanguageModel(options)
    optimizer = make_optimizer(options)
    optimizer.build(model.trainable_variables)
    run.restore(model, optimizer, remapping=remapping)
    return model, optimizer


def test_the_moments_are_kept(saved):
    run, model, optimizer = saved
    _, again = restored(run, model.options)
    for one, other in zip(again.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)


def test_the_state_of_adam_as_keras_has_it(tmp_path):
    model, optimizer = trained(ADAM, lambda _: keras.optimizers.Adam(name="adam"))
    run = RunDirectory.create(tmp_path / "run", ADAM, Vocabulary(VOCAB))
    run.save(model, optimizer, 3, 50.0)
    _, again = restored(run, ADAM)
    assert int(again.iterations) == 3
    for one, other in zip(again.variables[2:], optimizer.variables[2:], strict=True):  # after count and rate
        np.testing.assert_array_equal(one, other, err_msg=one.path)


def test_rows_follow_their_words_to_another_vocabulary(saved):
    run, model, optimizer = saved
    words = Vocabulary(VOCAB).words
    new_words = [*words[:3], "new", *words[40:60], "newer"]
    remapping = Remapping.of(words, new_words, np.ones(len(new_words), np.int64))
    options = dataclasses.replace(model.options, n_tokens_vocab=len(new_words))
    renewed, again = restored(run, options, remapping)
    assert int(again.iterations) == 3
    old_ids = [words.index(word) if word in words else -1 for word in new_words]
    for before, after in (
        (model.softmax.kernel, renewed.softmax.kernel),
        (model.softmax.bias, renewed.softmax.bias),
    ):
        for old, new in zip(optimizer.moments(before), again.moments(after), strict=True):
            for i, old_id in enumerate(old_ids):
                np.testing.assert_array_equal(new[i], old[old_id] if old_id >= 0 else np.zeros_like(new[i]))
