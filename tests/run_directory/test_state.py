"""The averages of the weights and the state of the optimizer in checkpoints: kept, used, carried over."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.errors import CheckpointError, OptionsError, WeightsError
from bilm.models.language_model import LanguageModel
from bilm.options import Optimizer, Options
from bilm.run_directory.directory import RunDirectory, RunModel
from bilm.run_directory.records import read_metrics
from bilm.run_directory.state import read_weights
from bilm.training.optimizers import make_optimizer
from bilm.training.update import update
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.hdf5_file import read_hdf5
from bilm.weights.transfer import Remapping, named_weights
from tests import helpers
from tests.helpers import HELDOUT, TRAIN, VOCAB, assert_same_arrays, checkpoint_arrays

DECAY = 0.2


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """Four steps, of which each has a checkpoint, and a validation after the last."""
    path = tmp_path_factory.mktemp("averaged") / "run"
    options = Options.from_json(helpers.smallest_options(weight_averaging=DECAY))
    saving = {"max_steps": 4, "save_every": 1, "keep": 9, "heldout_prefix": HELDOUT, "eval_every": 4}
    bilm.train(TRAIN, VOCAB, path, options=options, seed=7, **saving)
    return path


def test_the_averages_in_checkpoints_are_those_of_the_weights_in_them(averaged):
    opened = RunDirectory.open(averaged)
    expected = opened.weights("1")
    for t in range(2, 5):
        left = min(DECAY, t / (9 + t))
        raw, found = opened.weights(str(t), "raw"), opened.weights(str(t), "averaged")
        for name, weight in raw.items():
            expected[name] = left * expected[name] + (1 - left) * weight
            np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)
    assert not np.allclose(found["softmax/b"], raw["softmax/b"], atol=1e-5)
    assert_same_arrays(opened.weights(), found)
    tf1 = checkpoint_arrays(averaged / "model.ckpt-4")
    assert all(np.array_equal(tf1[name.tf1], raw[name.own]) for name in opened.names)


def test_calls_take_the_averages_unless_told_otherwise(averaged, tmp_path):
    (heldout,) = read_metrics(averaged / "metrics.jsonl").heldout
    tested = bilm.test(HELDOUT, averaged).perplexity
    assert tested == pytest.approx(heldout.perplexity, rel=1e-5)
    assert tested != pytest.approx(bilm.test(HELDOUT, averaged, weights="raw").perplexity, rel=1e-5)
    bilm.dump_weights(averaged, tmp_path / "dump.hdf5", with_softmax=True)
    opened = RunDirectory.open(averaged)
    assert_same_arrays(read_hdf5(tmp_path / "dump.hdf5", opened.names), opened.weights())


def test_a_restart_begins_at_them(averaged, tmp_path):
    arguments = {"max_steps": 1, "learning_rate": 1e-9, "seed": 1, "freeze": "softmax"}
    bilm.restart(TRAIN, averaged, save_to=tmp_path / "to", **arguments)
    before, after = RunDirectory.open(averaged), RunDirectory.open(tmp_path / "to")
    expected = before.weights()
    for name, array in after.weights(weights="raw").items():
        np.testing.assert_allclose(array, expected[name], atol=1e-6, err_msg=name)
    # What was frozen has no average, and is its own.
    assert "bilm/average/softmax/W" not in checkpoint_arrays(tmp_path / "to" / "model.ckpt-5", extras=True)
    np.testing.assert_array_equal(after.weights()["softmax/W"], expected["softmax/W"])


def test_averages_that_are_not_there(trained):
    opened = RunDirectory.open(trained.path)
    assert_same_arrays(opened.weights(), opened.weights(weights="raw"))
    with pytest.raises(OptionsError, match="`weights` is 'mean', not one of raw, averaged"):
        opened.weights(weights="mean")
    with pytest.raises(CheckpointError, match="model.ckpt-2: has no averages of its weights"):
        opened.weights(weights="averaged")


@pytest.mark.parametrize(
    ("name", "damaged", "error"),
    [
        ("bilm/average_updates", np.int64(-1), CheckpointError),
        ("bilm/average_decay", np.float64("nan"), CheckpointError),
        ("bilm/average_counts/softmax/b", np.full(73, 9), CheckpointError),
        ("bilm/average_counts/softmax/b", np.full(72, 1), WeightsError),
        ("bilm/average/softmax/b", np.zeros(72, np.float32), WeightsError),
        ("bilm/average/softmax/b", np.full(73, np.inf, np.float32), CheckpointError),
    ],
)
def test_damaged_averages(averaged, name, damaged, error, tmp_path):
    opened = RunDirectory.open(averaged)
    extras = checkpoint_arrays(averaged / "model.ckpt-4", extras=True)
    extras = {key: array for key, array in extras.items() if key.startswith("bilm/average")}
    assert name in extras
    prefix, weights = tmp_path / "model.ckpt-4", opened.weights("4", "raw")
    write_checkpoint(prefix, opened.names, weights, {}, 4, 1.0, extras | {name: damaged})
    with pytest.raises(error, match="model.ckpt-4"):
        read_weights(CheckpointFile(prefix), opened.names, None)


# --- the state of the optimizer ---------------------------------------------------------------------------


ADAM = dataclasses.replace(
    Options.from_json(helpers.small_options(n_tokens_vocab=73)), optimizer=Optimizer.ADAM, learning_rate=0.01
)
MUON = dataclasses.replace(ADAM, optimizer=Optimizer.MUON)


def stepped(options):
    """A small model after some steps with gradients of a few rows."""
    keras.utils.set_random_seed(1)
    model = LanguageModel(options)
    optimizer = make_optimizer(options)
    optimizer.build(model.trainable_variables)
    random = np.random.default_rng(0)
    for _ in range(3):
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
    model, optimizer = stepped(request.param)
    run = RunDirectory.create(tmp_path / "run", request.param, Vocabulary(VOCAB))
    run.save(model, optimizer, 3, 50.0)
    return run, model, optimizer


def test_rows_follow_their_words_to_another_vocabulary(saved):
    run, model, optimizer = saved
    words = Vocabulary(VOCAB).words
    new_words = [*words[:3], "new", *words[40:60], "newer"]
    remapping = Remapping.of(words, new_words, np.ones(len(new_words), np.int64))
    options = dataclasses.replace(model.options, n_tokens_vocab=len(new_words))
    renewed, again = LanguageModel(options), make_optimizer(options)
    again.build(renewed.trainable_variables)
    RunModel(run.path).restore_optimizer(again, named_weights(renewed), remapping)
    assert int(again.iterations) == 3
    before, after = optimizer.moments(model.softmax.kernel), again.moments(renewed.softmax.kernel)
    for old, new in zip(before, after, strict=True):
        for word, row in zip(new_words, np.array(new), strict=True):
            expected = old[words.index(word)] if word in words else np.zeros_like(row)
            np.testing.assert_array_equal(row, expected)
