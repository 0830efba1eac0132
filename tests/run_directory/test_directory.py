"""The run directory: created, saved to, restored from; damaged in every way; the one that writes."""

import dataclasses
import fcntl
import gzip
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import CheckpointError, VocabularyError, WeightsError
from bilm.io.run_files import MARK_FILE
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.options.recipes import OF_BILM_TF
from bilm.run_directory import files
from bilm.run_directory.directory import RunDirectory, RunModel
from bilm.run_directory.files import require_replaceable, writing
from bilm.run_directory.state import read_lstm_states, restore_optimizer
from bilm.training.optimizers import Adagrad, make_optimizer
from bilm.training.update import update
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import write_checkpoint
from bilm.weights.transfer import Remapping
from tests import helpers
from tests.helpers import GOLDEN, VOCAB, assert_same_arrays, checkpoint_arrays, raising, snapshot
from tests.io.test_outputs import no_locks

DATA, INDEX = "model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"


@pytest.fixture(scope="module")
def options():
    return Options.from_json(helpers.small_options(n_tokens_vocab=73))


def new_model(options, seed):
    keras.utils.set_random_seed(seed)
    model = LanguageModel(options)
    optimizer = Adagrad(options.step_size)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def everything(model, optimizer):
    """All variables and all accumulators."""
    values = {}
    for name, variable in model.named_weights().items():
        values[name] = variable.numpy()
        values[f"{name}/accumulator"] = optimizer.accumulator(variable).numpy()
    return values


@pytest.fixture(scope="module")
def saved_once(options, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run"
    model, optimizer = new_model(options, 1)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        slot = optimizer.accumulator(variable)
        slot.assign(rng.uniform(1, 2, slot.shape).astype(np.float32))
    run = RunDirectory.create(path, options, Vocabulary(VOCAB))
    assert run.save(model, optimizer, 7, 55.5) == path / "model.ckpt-7"
    return path, everything(model, optimizer)


@pytest.fixture
def saved(saved_once, tmp_path):
    """A run with a checkpoint of step 7, and what is in it."""
    return RunDirectory.open(shutil.copytree(saved_once[0], tmp_path / "run")), saved_once[1]


@pytest.fixture
def removed(monkeypatch):
    """The names of removed files, in order."""
    names, unlink = [], Path.unlink

    def recorded(path, missing_ok=False):
        names.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", recorded)
    return names


def test_restore_returns_saved_arrays(saved, options):
    run, expected = saved
    model, optimizer = new_model(options, 2)
    assert helpers.restore(RunDirectory.open(run.path), model, optimizer) == 7
    assert_same_arrays(everything(model, optimizer), expected)


def test_save_writes_bilm_tf_files(saved):
    run, expected = saved
    names = {"options.json", "vocab.txt", "vocab.txt.sha256", "bilm-run.json", "checkpoint"}
    assert {path.name for path in run.path.iterdir()} == names | {DATA, INDEX}
    arrays = checkpoint_arrays(run.path / "model.ckpt-7")
    for name in run.names:
        np.testing.assert_array_equal(arrays[name.tf1], expected[name.own])
        np.testing.assert_array_equal(arrays[f"{name.tf1}/Adagrad"], expected[f"{name.own}/accumulator"])
    assert arrays["global_step"] == 7
    assert len(arrays) == 2 * len(run.names) + 2
    assert (run.path / "vocab.txt").read_text() == VOCAB.read_text()


def test_second_save_becomes_newest(saved, options, removed):
    run, _ = saved
    model, optimizer = new_model(options, 3)
    assert run.obsolete(keep=1, first=0, step=9) == [7] and run.obsolete(keep=2, first=0, step=9) == []
    assert run.obsolete(keep=1, first=7, step=9) == []  # the call began from it
    assert run.obsolete(keep=1, first=0, step=9, spare=[7]) == run.obsolete(keep=1, first=0, step=6) == []
    for name in ("model.ckpt-8.data-00000-of-00001", "model.ckpt-x.data"):
        (run.path / name).write_text("of a process that was killed, or mine")
    run.save(model, optimizer, 9, 50.0, obsolete=[7])
    assert run.latest().step() == 9
    state = 'model_checkpoint_path: "model.ckpt-9"\nall_model_checkpoint_paths: "model.ckpt-9"\n'
    assert (run.path / "checkpoint").read_text() == state
    assert {path.stem for path in run.path.glob("model.ckpt-*")} == {"model.ckpt-9", "model.ckpt-x"}
    assert removed.index(INDEX) < removed.index(DATA)  # without an index there is no checkpoint


def test_copied_directory_opens(saved, tmp_path):
    run, _ = saved
    (run.path / "checkpoint").write_text(f'model_checkpoint_path: "{run.path}/model.ckpt-7"\n')
    copy = shutil.copytree(run.path, tmp_path / "copy")
    assert RunDirectory.open(copy).latest().prefix == str(copy / "model.ckpt-7")
    for file in run.path.glob("model.ckpt-*"):
        file.unlink()
    (run.path / "checkpoint").write_text('model_checkpoint_path: "../copy/model.ckpt-7"\n')
    assert RunDirectory.open(run.path).latest().step() == 7


def test_missing_options_are_those_of_bilm_tf():
    assert OF_BILM_TF.items() <= vars(RunDirectory.open(GOLDEN / "char" / "final").options).items()


def test_check_vocabulary_refuses_wrong_size():
    model = RunModel(GOLDEN / "char" / "final")
    with pytest.raises(VocabularyError, match=r"the vocabulary has 4 words, the model in .* 73"):
        model.check_vocabulary(Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a"]))


def test_missing_accumulators_warn_and_restart(saved, options, caplog):
    run, expected = saved
    weights = {name.own: expected[name.own] for name in run.names}
    write_checkpoint(run.path / "model.ckpt-7", run.names, weights, {}, 7, 1.0)
    model, optimizer = new_model(options, 2)
    start = everything(model, optimizer)
    assert helpers.restore(run, model, optimizer) == 7
    assert "no state of the optimizer adagrad; it starts from scratch" in caplog.text
    restored = everything(model, optimizer)
    accumulators = {name: array for name, array in start.items() if name not in weights}
    assert_same_arrays(restored, weights | accumulators)


# --- damage -----------------------------------------------------------------------------------------


def _cut(path, n_bytes):
    path.write_bytes(path.read_bytes()[:n_bytes])


def _state(run, content):
    """Without a checkpoint, and with another state file."""
    (run / INDEX).unlink()
    (run / "checkpoint").write_bytes(content)


def _declare_a_huge_block(run):
    """Let the footer say that the block of names has 2**41 bytes: TensorFlow's reader asks for the memory."""
    index = (run / INDEX).read_bytes()
    sizes = bytes([0, 5, 0, *[128] * 5, 64]).ljust(40, b"\0")
    (run / INDEX).write_bytes(index[:-48] + sizes + index[-8:])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: _cut(run / DATA, 1000), "model.ckpt-7: damaged"),
        (lambda run: (run / DATA).unlink(), "model.ckpt-7: damaged"),
        (lambda run: (run / INDEX).unlink(), "model.ckpt-7.index: no such checkpoint"),
        (lambda run: _cut(run / INDEX, 50), "model.ckpt-7: damaged"),
        (lambda run: _state(run, b"\xff\xfe\x00"), "checkpoint: damaged; it must have"),
        pytest.param(_declare_a_huge_block, "model.ckpt-7: damaged", id="huge block"),
        (lambda run: _state(run, b""), "checkpoint: damaged; it must have"),
    ],
)
def test_damaged_checkpoint_is_named(saved, damage, message):
    run, _ = saved
    damage(run.path)
    with pytest.raises(CheckpointError) as caught:
        run.weights()
    assert message in str(caught.value) and str(run.path) in str(caught.value)


def test_open_names_what_a_directory_is(saved, tmp_path):
    run, _ = saved
    _cut(run.path / "vocab.txt", 30)
    with pytest.raises(CheckpointError, match="run/vocab.txt: changed since the run began"):
        RunDirectory.open(run.path)
    with pytest.raises(CheckpointError, match="none: not a run directory: no such directory"):
        RunDirectory.open(tmp_path / "none")
    with pytest.raises(
        CheckpointError, match=f"a checkpoint, which `bilm test` takes as `model` {run.path} `checkpoint`"
    ):
        RunDirectory.open(run.index.newest())
    (run.path / "options.json").unlink()
    with pytest.raises(CheckpointError, match="run: not a run directory: no options.json in it"):
        RunDirectory.open(run.path)


def test_checkpoint_of_other_shapes_is_refused(saved):
    run, _ = saved
    changes = {"lstm": {"dim": 6, "n_layers": 3}, "char_cnn": {"n_highway": 0}}
    helpers.write_json(run.path / "options.json", helpers.small_options(n_tokens_vocab=73, **changes))
    with pytest.raises(WeightsError, match=r"kernel has \(8, 32\), expected \(8, 24\)"):
        RunDirectory.open(run.path).latest()


# --- creation ---------------------------------------------------------------------------------------


def test_create_replaces_only_with_overwrite(saved, options, removed):
    run, _ = saved
    (run.path / "notes.txt").write_text("mine")
    before = snapshot(run.path)
    with pytest.raises(CheckpointError, match="already holds a run"):
        RunDirectory.create(run.path, options, Vocabulary(VOCAB))
    assert snapshot(run.path) == before
    RunDirectory.create(run.path, options, Vocabulary(VOCAB), overwrite=True)
    names = {"bilm-run.json", "notes.txt", "options.json", "vocab.txt", "vocab.txt.sha256"}
    assert {path.name for path in run.path.iterdir()} == names
    first, *_, last = filter(before.__contains__, removed)  # half removed it is no run, but bilm's
    assert (first, last) == ("checkpoint", "bilm-run.json")


def test_discard_spares_saved_run(saved, options, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("")
    RunDirectory.create(tmp_path / "new", options, Vocabulary(VOCAB)).discard_unsaved()
    assert [*snapshot(tmp_path / "new")] == ["notes.txt"]
    run, _ = saved
    before = snapshot(run.path)
    run.discard_unsaved()
    assert snapshot(run.path) == before


def test_interrupted_create_leaves_nothing(options, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "vocabulary_files", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "new"):
        RunDirectory.create(tmp_path / "new", options, Vocabulary(VOCAB))
    assert not any(tmp_path.iterdir())


def test_compressed_vocabulary_is_found(tmp_path):
    path = shutil.copytree(GOLDEN / "char" / "final", tmp_path / "final")
    assert RunModel(path).vocabulary() is None
    (path / "vocab.txt.gz").write_bytes(gzip.compress(VOCAB.read_bytes()))
    assert RunModel(path).vocabulary().size == 73
    RunDirectory.open(path).take_over(Vocabulary(VOCAB))
    assert RunDirectory.open(path).vocabulary_file.name == "vocab.txt"


def test_only_checkpoint_is_continued_by_name(saved):
    run, _ = saved
    (run.path / "checkpoint").unlink()
    for file in run.path.glob("model.ckpt-7.*"):
        file.rename(file.with_name(file.name.replace("model.ckpt-7", "model")))
    RunModel(run.path, "model").require_in_place()


def test_another_vocabulary_is_refused(saved):
    run, _ = saved
    model = RunModel(run.path)
    words = VOCAB.read_text().split()
    model.check_vocabulary(Vocabulary.from_words(words))
    for given in ([*words[:5], "new", *words[6:]], [*words, ""]):
        with pytest.raises(VocabularyError, match="is not the run's, whose copy is .*/vocab.txt"):
            model.check_vocabulary(Vocabulary.from_words(given))


# --- its place ------------------------------------------------------------------------------------


def test_writing_excludes_other_processes(tmp_path):
    path = tmp_path / "deep" / "run"
    with writing(path):
        with pytest.raises(CheckpointError) as caught, writing(path):
            pass
        assert f"{path}: host " in str(caught.value)
        assert f"process {os.getpid()} is training in it" in str(caught.value)
        assert "(remove bilm.lock if its host failed)" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_writing_keeps_existing_directories(tmp_path):
    with writing(tmp_path / "a" / "b"):
        (tmp_path / "a" / "notes.txt").touch()
    with writing(tmp_path / "a"):
        pass
    assert sorted(snapshot(tmp_path)) == ["a", "a/notes.txt"]


def test_writing_warns_without_locks(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with writing(tmp_path / "run"):
        assert f"{tmp_path / 'run'}: this file system has no locks" in caplog.text


@pytest.mark.parametrize("name", ["options.json", "vocab.txt", "run.toml", "events.out.tfevents.1.bilm"])
def test_require_replaceable_refuses_foreign_files(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for overwrite in (False, True):
        message = f"{name}: is an input of this command, or was not written by the"
        with pytest.raises(CheckpointError, match=message):
            require_replaceable(tmp_path, overwrite)


def test_require_replaceable_ignores_other_files(tmp_path):
    for name in ("notes.txt", "events.out.tfevents.1.host.v2", "model.ckpt-x", "vocab.txt.gz"):
        (tmp_path / name).touch()
    require_replaceable(tmp_path, False)


def test_require_replaceable_refuses_inputs_by_any_name(run_copy, tmp_path):
    require_replaceable(run_copy, True)
    link = tmp_path / "link"
    for name, make in (("options.json", link.symlink_to), ("vocab.txt", link.hardlink_to)):
        make(run_copy / name)
        with pytest.raises(CheckpointError, match=f"{name}: is an input of this command, or"):
            require_replaceable(run_copy, True, [link])
        link.unlink()


def test_require_replaceable_allows_unsaved_run(run_copy):
    (run_copy / "checkpoint").unlink()
    with pytest.raises(CheckpointError, match="already holds a run"):
        require_replaceable(run_copy, False)
    for file in run_copy.glob("model.ckpt*"):
        file.unlink()
    require_replaceable(run_copy, False)


def test_vocabulary_without_digest_is_spared(run_copy):
    """As in a run of bilm-tf that was continued: the vocabulary is the user's."""
    (run_copy / "vocab.txt.sha256").unlink()
    with pytest.raises(CheckpointError, match="vocab.txt: is an input of this command, or was not written"):
        require_replaceable(run_copy, True)


def test_require_replaceable_refuses_unmarked_run(run_copy):
    (run_copy / MARK_FILE).unlink()
    with pytest.raises(CheckpointError, match="already holds a run; continue it with .* or remove it"):
        require_replaceable(run_copy, True)


# --- the state of the optimizer ---------------------------------------------------------------------------


MUON = Options.from_json(helpers.small_options(n_tokens_vocab=73, optimizer="muon", learning_rate=0.01))


def stepped(options):
    """A small model after some steps with gradients of a few rows."""
    keras.utils.set_random_seed(1)
    model = LanguageModel(options)
    variables = model.named_weights()
    optimizer = make_optimizer(options, variables)
    random = np.random.default_rng(0)
    for _ in range(3):
        gradients = [
            tf.IndexedSlices(
                tf.constant(random.normal(size=(4, *variable.shape[1:])), tf.float32),
                tf.constant(random.choice(73, 4, replace=False)),
                tf.constant(variable.shape),
            )
            if name.startswith("softmax/")
            else tf.constant(random.normal(size=variable.shape), tf.float32)
            for name, variable in variables.items()
        ]
        update(optimizer, gradients, [*variables.values()], tf.constant(0.01), 10.0)
    return model, optimizer


@pytest.fixture(scope="module")
def saved_moments(tmp_path_factory):
    model, optimizer = stepped(MUON)
    run = RunDirectory.create(tmp_path_factory.mktemp("moments") / "run", MUON, Vocabulary(VOCAB))
    run.save(model, optimizer, 3, 50.0)
    return run, model, optimizer


def test_incomplete_optimizer_state_is_not_loaded(saved_moments, caplog):
    run, model, optimizer = saved_moments
    again = make_optimizer(model.options, model.named_weights())
    again.add_variable(shape=(2,), name="of_a_later_version")
    restore_optimizer(again, model.named_weights(), run.latest(), run.names)
    assert f"no state of the optimizer {optimizer.name}; it starts from scratch" in caplog.text
    assert int(again.iterations) == 0


@pytest.mark.parametrize("state", [None, [0.0] * 3, [0, 0]], ids=["none", "shape", "type"])
def test_wrong_lstm_states_are_refused(state, saved, options):
    run, _ = saved
    extras = {} if state is None else {"bilm/lstm_state/0": tf.constant(state)}
    run.save(*new_model(options, 1), 9, 50.0, extras)
    with pytest.raises(CheckpointError, match=r"bilm/lstm_state/0 is missing or damaged, expected \(2,\)"):
        read_lstm_states(run.latest(), (tf.zeros([2]),))


def test_moments_follow_words_to_new_vocabulary(saved_moments):
    run, model, optimizer = saved_moments
    words = Vocabulary(VOCAB).words
    new_words = [*words[:3], "new", *words[40:60], "newer"]
    remapping = Remapping(words, new_words, np.ones(len(new_words), np.int64))
    options = dataclasses.replace(model.options, n_tokens_vocab=len(new_words))
    renewed = LanguageModel(options)
    again = make_optimizer(options, renewed.named_weights())
    restore_optimizer(again, renewed.named_weights(), run.latest(), run.names, remapping)
    assert int(again.iterations) == 3
    before, after = optimizer.moment(model.softmax.kernel), again.moment(renewed.softmax.kernel)
    for word, row in zip(new_words, np.array(after), strict=True):
        expected = before[words.index(word)] if word in words else np.zeros_like(row)
        np.testing.assert_array_equal(row, expected)
