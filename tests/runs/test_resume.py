"""A run that was stopped anywhere and resumed is, to the bit, the run that never was."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.embedding.scoring import Evaluation, Scorer
from bilm.errors import BilmError, CheckpointError, DataError, OptionsError
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.records import WRITER, read_metrics
from bilm.run_directory.state import Best, RunState, read_state
from bilm.runs.settings import read_arguments
from bilm.training.meter import LossScale
from bilm.training.trainer import Trainer, training_steps
from tests import helpers
from tests.corpora import write
from tests.helpers import HELDOUT, TRAIN, VOCAB, newest_arrays, python, small_options, smallest_options
from tests.kill_and_resume import differences, numbers
from tests.records import plan

N_STEPS = 14
REGULARIZED = {"word_dropout": 0.1, "activation_regularization": 0.1, "weight_decay": 0.01}


class Calls:
    """Calls of `bilm.train` that share one compiled step; every call finds its weights and state as new.

    What a call that resumes does not restore is spoilt, so that its numbers differ.
    """

    def __init__(self, directory, changed_options, optimizer, **changes):
        options = {"batch_size": 4, "n_epochs": 99, "optimizer": optimizer, **REGULARIZED, **changes}
        self.options = Options.from_json(changed_options(n_tokens_vocab=73, **options))
        lines = HELDOUT.read_text().splitlines(keepends=True)
        self.heldout = write(directory / "heldout.txt", "".join(lines[::20]))
        self.trainer = Trainer(LanguageModel(self.options, self.options.precision), seed=5)
        self.start = [variable.numpy() for variable in self.variables]
        self.scorer = None
        self.is_resuming = False

    @property
    def variables(self):
        return [*self.trainer.model.weights, *self.trainer.optimizer.variables]

    def _model(self, options, *_):
        self.trainer.options = self.trainer.model.options = options  # those of the call, complete
        for variable, value in zip(self.variables, self.start, strict=True):
            spoilt = tf.fill(variable.shape, tf.cast(7, variable.dtype))
            variable.assign(spoilt if self.is_resuming else value)
        return self.trainer.model

    def _trainer(self, *_):
        self.trainer.states = tf.nest.map_structure(tf.zeros_like, self.trainer.states)
        self.trainer.loss_scale = self.trainer.loss_scale and LossScale()
        return self.trainer

    def _scorer(self, *arguments):
        self.scorer = self.scorer or Scorer(*arguments)
        return self.scorer

    def train(self, path, n_questions=None, text=TRAIN, meanwhile=None, resume=False):
        """Train until it is asked for the n-th time whether it should stop: after a step, or in a validation.

        At step 6 something happens meanwhile.
        """
        asked = iter(range(1000 if n_questions is None else n_questions))

        def follow(report):
            self.last_step = report.step
            if meanwhile and report.step == 6:
                meanwhile()

        self.is_resuming, reporter = resume, helpers.reporting(step=follow)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("bilm.runs.prepare._make_model", self._model)
            patched.setattr("bilm.runs.prepare.Trainer", self._trainer)
            patched.setattr("bilm.embedding.scoring.Scorer", self._scorer)
            patched.setattr("bilm.runs.loop._SLICE_TOKENS", 40)
            return bilm.train(
                *(text, VOCAB, path),
                **{"options": self.options, "heldout_prefix": self.heldout, "max_steps": N_STEPS, "seed": 5},
                **{"shuffle_buffer": 40, "save_every": 4, "eval_every": 5, "log_every": 3, "resume": resume},
                **{"reporter": reporter, "should_stop": lambda: next(asked, None) is None},
            )


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return Calls(tmp_path_factory.mktemp("calls"), smallest_options, "muon")


@pytest.fixture(scope="module")
def whole(calls, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    assert calls.train(path).outcome == "finished"
    return numbers(path)


def newest_state(path):
    return read_state(RunDirectory.open(path).latest())


def resumes_to(calls, whole, path, n_questions):
    """Whether the call was stopped; if so it goes on to the same numbers."""
    outcome = calls.train(path, n_questions).outcome
    if outcome == "stopped":
        assert calls.train(path, resume=True).outcome == "finished"
    assert differences(numbers(path), whole) == [], n_questions
    return outcome == "stopped"


@pytest.mark.slow
def test_every_stop_resumes_bit_exact(calls, whole, tmp_path):
    """There are more questions than steps: each window of a validation asks as well."""
    n_stops = 1
    while resumes_to(calls, whole, tmp_path / str(n_stops), n_stops):
        n_stops += 1
    assert n_stops > N_STEPS + 4


@pytest.mark.slow
def test_bfloat16_resumes_bit_exact(tmp_path):
    """Stopped in a step and in a validation."""
    calls = Calls(tmp_path, small_options, "adagrad", precision="bfloat16")
    assert calls.train(tmp_path / "whole").outcome == "finished"
    whole = numbers(tmp_path / "whole")
    for n_questions in (3, 5, 17):
        assert resumes_to(calls, whole, tmp_path / str(n_questions), n_questions)


@pytest.mark.slow
def test_float16_resumes_loss_scale(tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.training.meter._STEPS_TO_DOUBLE", 3)
    calls = Calls(tmp_path, smallest_options, "adagrad", precision="float16", accumulate=2)
    assert calls.train(tmp_path / "whole").outcome == "finished"
    whole = numbers(tmp_path / "whole")
    for n_questions in (2, 5):  # after step 3, which is recorded, and in the validation of step 5
        assert resumes_to(calls, whole, tmp_path / str(n_questions), n_questions)
        assert newest_state(tmp_path / str(n_questions)).loss_scale.value > LossScale().value


def shown_steps(path, tag):
    """Steps of a scalar that TensorBoard shows: a start removes all from its step on."""
    steps = []
    for file in sorted(path.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            if event.session_log.status == tf.compat.v1.SessionLog.START:
                steps = [step for step in steps if step < event.step]
            steps += [event.step for value in event.summary.value if value.tag == tag]
    return steps


def test_killed_call_resumes_records_and_events(calls, whole, tmp_path):
    def kill():
        raise RuntimeError("killed")

    path = tmp_path / "run"
    with pytest.raises(RuntimeError, match="killed"):
        calls.train(path, meanwhile=kill)
    assert shown_steps(path, "train/loss") == [3, 6] and newest_state(path).step == 5
    with (path / "metrics.jsonl").open("a") as lines:
        lines.write('{"kind": "tra')
    assert calls.train(path, resume=True).outcome == "finished"
    assert differences(numbers(path), whole) == []
    assert shown_steps(path, "train/loss") == [3, 6, 9, 12, 14]
    assert shown_steps(path, "heldout/perplexity") == [5, 10, 14]


def of_states(data):
    """A flip in the first array, which is of the LSTM states."""
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize("harm", [lambda data: data[:-100], of_states], ids=["cut", "other states"])
def test_torn_checkpoint_is_skipped(calls, whole, tmp_path, caplog, harm):
    path = tmp_path / "run"
    calls.train(path, 12)
    newest = RunDirectory.open(path).latest().prefix
    data = Path(newest + ".data-00000-of-00001")
    data.write_bytes(harm(data.read_bytes()))
    assert calls.train(path, resume=True).outcome == "finished"
    assert f"{newest}: damaged" in caplog.text and f"using {path / 'model.ckpt-'}" in caplog.text
    assert differences(numbers(path), whole) == []


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_text("a b\n" * 99)])
def test_changed_text_ends_call_with_checkpoint(calls, tmp_path, harm):
    """The next epoch opens it again, and what was learned before is not lost."""
    lines = "".join(TRAIN.read_text().splitlines(keepends=True)[:9])
    text = write(tmp_path / "text", lines)
    with pytest.raises(DataError, match=r"text: .*; saved: .*ckpt-\d+; continue with resume=True on the"):
        calls.train(tmp_path / "run", meanwhile=lambda: harm(text), text=text)
    assert 6 <= newest_state(tmp_path / "run").n_done == calls.last_step < N_STEPS
    text.write_text(lines)
    assert calls.train(tmp_path / "run", text=text, resume=True).outcome == "finished"
    calls.train(tmp_path / "whole", text=text)
    found = differences(numbers(tmp_path / "run"), numbers(tmp_path / "whole"))
    assert all(name.endswith("run_state") for name in found)  # the time of the file


def test_lost_records_warn(calls, whole, tmp_path, caplog):
    path = tmp_path / "run"
    calls.train(path, 7)
    (path / "metrics.jsonl").unlink()
    assert calls.train(path, resume=True).outcome == "finished"
    assert f"{path / 'metrics.jsonl'}: earlier records are missing" in caplog.text
    assert set(differences(numbers(path), whole)) == {"metrics"}
    kept = numbers(path)["metrics"]
    assert kept and kept == whole["metrics"][-len(kept) :]


# --- what happens to the directory meanwhile ----------------------------------------------------------


@pytest.mark.parametrize("is_replaced", [False, True], ids=["moved", "replaced"])
def test_moved_directory_ends_call(calls, tmp_path, is_replaced):
    path, moved = tmp_path / "run", tmp_path / "moved"

    def move():
        path.rename(moved)
        if is_replaced:  # by another run
            path.mkdir()
            (path / "bilm-run.json").touch()

    with pytest.raises(CheckpointError, match="is not the directory in which this run began, which was"):
        calls.train(path, meanwhile=move)
    assert not path.exists() or [file.name for file in path.iterdir()] == ["bilm-run.json"]
    assert RunDirectory.open(moved).latest().step() == 5


def test_directory_moved_during_save_ends_call(calls, tmp_path, monkeypatch):
    path, save = tmp_path / "run", RunDirectory.save

    def save_and_move(*arguments, **options):
        save(*arguments, **options)
        path.rename(tmp_path / "moved")

    monkeypatch.setattr(RunDirectory, "save", save_and_move)
    with pytest.raises(CheckpointError, match="is not the directory in which this run began, which was"):
        calls.train(path, 1)
    assert RunDirectory.open(tmp_path / "moved").latest().step() == 2 and not path.exists()


def test_removed_files_are_rewritten(calls, whole, tmp_path):
    path = tmp_path / "run"

    def remove():
        for name in ("vocab.txt", "checkpoint"):
            (path / name).unlink()

    assert calls.train(path, meanwhile=remove).outcome == "finished"
    assert differences(numbers(path), whole) == []
    assert calls.train(path, resume=True).outcome == "finished"


def test_replaced_records_file_is_appended_to(calls, tmp_path):
    path, mine = tmp_path / "run", write(tmp_path / "mine", '{"kind": "mine"}\n')
    calls.train(path, meanwhile=lambda: mine.replace(path / "metrics.jsonl"))
    first, *_, last = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    assert first == {"kind": "mine"} and last["step"] == N_STEPS


def test_changed_vocabulary_is_error(calls, tmp_path):
    path = tmp_path / "run"
    calls.train(path, meanwhile=lambda: (path / "vocab.txt").write_text("mine\n"))
    with pytest.raises(CheckpointError, match="vocab.txt: changed since the run began; restore it"):
        calls.train(path, resume=True)
    assert (path / "vocab.txt").read_text() == "mine\n" and (path / f"model.ckpt-{N_STEPS}.index").exists()


def test_skipped_last_step_saves_readable_state(calls, tmp_path, monkeypatch):
    steps = training_steps

    def skip_last(*arguments):
        for report in steps(*arguments):
            lost = {"direction_losses": (math.nan,) * 2, "gradient_norm": math.inf, "is_skipped": True}
            yield dataclasses.replace(report, **lost if report.step == N_STEPS else {})

    monkeypatch.setattr("bilm.runs.loop.training_steps", skip_last)
    path = tmp_path / "run"
    assert calls.train(path).outcome == "finished"
    state = newest_state(path)
    assert state.step == N_STEPS and math.isfinite(state.train_perplexity)


def test_nan_validation_is_never_best(calls, whole, tmp_path, monkeypatch):
    nan = Evaluation((math.nan, math.nan), 40, (math.nan,))
    monkeypatch.setattr(calls.scorer, "evaluate", lambda parts, on_window: nan)
    path = tmp_path / "run"
    assert calls.train(path).outcome == "finished"
    assert newest_state(path).best is None
    assert all(math.isnan(record.perplexity) for record in read_metrics(path / "metrics.jsonl").heldout)


def test_best_validation_is_lowest_and_kept(calls, whole, tmp_path, monkeypatch):
    losses = iter([5.0, 9.0, 4.0, 9.0, 4.0, 9.0])  # of the heldout text and the slice, three times
    monkeypatch.setattr(calls.scorer, "evaluate", lambda *_: Evaluation((next(losses),) * 2, 40, (1.0,)))
    path = tmp_path / "run"
    assert calls.train(path).best_step == 10
    assert [record.best for record in read_metrics(path / "metrics.jsonl").heldout] == [True, True, False]
    assert newest_state(path).n_without_gain == 1
    assert RunDirectory.open(path).index.steps() == [10, 12, 14]


def test_unreadable_state_is_not_written():
    assert RunState(plan()).to_json()["written_by"] == WRITER
    for state in (RunState(plan(), train_perplexity=math.nan), RunState(plan(), best=Best(3, math.inf))):
        with pytest.raises(ValueError, match="not JSON compliant"):
            state.tensors(())


# --- whole calls ------------------------------------------------------------------------------------


OPTIONS = Options.from_json(smallest_options())


def train(path, text=TRAIN, n_questions=None, **arguments):
    """What is reported of a call that resumes, and is stopped at a question."""
    asked, lines = iter(range(n_questions or 0)), []
    reporter = helpers.reporting(say=lines.append)
    should_stop = None if n_questions is None else lambda: next(asked, None) is None
    given = {"options": OPTIONS, "max_steps": 6, "save_every": 2, "resume": True, "should_stop": should_stop}
    result = bilm.train(text, VOCAB, path, reporter=reporter, **given | arguments)
    return [*lines, f"{result.outcome}: {result.saved}"]


def refusal(path, *arguments, **changes):
    with pytest.raises(BilmError) as caught:
        train(path, *arguments, **changes)
    return str(caught.value)


@pytest.mark.slow
def test_resume_begins_continues_and_finishes(tmp_path):
    path = tmp_path / "run"
    train(tmp_path / "whole", seed=3)
    assert train(path, n_questions=2, seed=3)[-1] == f"stopped: {path / 'model.ckpt-3'}"
    second = train(path)  # the seed is known
    assert f"resuming: {path}/model.ckpt-3, step 3, 3 of 6 done (epoch 0.01)" in second
    assert second[-1] == f"finished: {path / 'model.ckpt-6'}"
    assert differences(numbers(path), numbers(tmp_path / "whole")) == []
    assert train(path, log_every=50)[-1] == "finished: None"  # which changes no numbers
    assert "resume" not in read_arguments(path / "run.toml")
    calls = [json.loads(line) for line in (path / "calls.jsonl").read_text().splitlines()]
    assert [call["step"] for call in calls] == [0, 3] and {call["seed"] for call in calls} == {3}


def test_resume_refuses_changes_by_name(run_copy, tmp_path):
    changes = {"seed": 0, "learning_rate": 0.1, "shuffle_buffer": 7, "changes": {"lstm.cell_clip": 2}}
    message = refusal(run_copy, **changes, precision="bfloat16")
    assert "precision (float32 to bfloat16)" in message.replace('"', "")
    for change in ("learning_rate (0.2 to 0.1)", "`seed` (7 to 0)", "`shuffle_buffer` (100000 to 7)"):
        assert change in message
    assert "lstm.cell_clip (3.0 to 2.0)" in message and str(run_copy) in message
    other = write(tmp_path / "train.txt", TRAIN.read_text() + "one more\n")
    message = refusal(run_copy, other)
    assert re.search(r"`train_prefix`: .* another text: .*train\.txt: .* \d+,\d+ bytes before, \d+", message)
    assert '`heldout_prefix` (null to "given")' in refusal(run_copy, heldout_prefix=HELDOUT)


@pytest.mark.slow
def test_resumed_restart_keeps_smaller_rate(tmp_path):
    """As after a schedule that had ended on the same text."""
    path, common = tmp_path / "run", {"max_steps": 4, "seed": 3, "shuffle": False}
    bilm.train(TRAIN, VOCAB, path, options=smallest_options(), recipe="one-pass", **common)
    stopped = bilm.restart(TRAIN, path, should_stop=lambda: True, **common)
    resumed = bilm.restart(TRAIN, path, resume=True, **common)
    assert (stopped.outcome, resumed.outcome, resumed.step) == ("stopped", "finished", 8)


def test_resume_identifies_text_by_bytes(run_copy, tmp_path, monkeypatch):
    """Wherever it lies: it is read for its checksum then, and not counted."""
    monkeypatch.setattr("bilm.data.corpus.count_corpus", helpers.raising(AssertionError("counted again")))
    moved = shutil.copy(TRAIN, tmp_path / "moved.txt")
    for text in (TRAIN, moved):
        first, *_, last = train(run_copy, text, max_steps=2)  # all done
        assert first.startswith("corpus: 1 file, 240 sentences") and last == "finished: None"
    moved.write_bytes(moved.read_bytes()[::-1])
    message = refusal(run_copy, moved)
    assert f"`train_prefix`: cannot be resumed with another text: {moved}: differs from the file" in message
    assert "bytes as before, but different content; give the original text" in message
    assert "1 files before, 2 now" in refusal(run_copy, [TRAIN, moved])


def test_resume_refuses_checkpoint_of_bilm_tf(tmp_path):
    golden = Path(TRAIN).parent / "step0"
    copy = shutil.copytree(golden, tmp_path / "golden")
    message = refusal(copy, options=golden / "options.json")
    assert "written by bilm-tf, not by the bilm train that is to be resumed" in message


def test_resume_without_checkpoint_begins(run_copy):
    for file in [*run_copy.glob("model.ckpt*"), run_copy / "checkpoint"]:
        file.unlink()
    assert train(run_copy, max_steps=1)[-1].startswith("finished: ")
    assert json.loads((run_copy / "metrics.jsonl").read_text())["loss"] > 0


@pytest.mark.slow
def test_rows_start_from_cooccurrences_once(tmp_path, monkeypatch):
    """They have length 1; a resumed run does not compute them, nor one without rows of its own."""
    arguments = {"options": smallest_options(batch_size=4), "recipe": "one-pass", "max_steps": 3, "seed": 5}
    arguments |= {"optimizer": "adagrad", "learning_rate": 0.006}

    def rows(path, **more):
        bilm.train(TRAIN, VOCAB, path, **arguments, **more)
        return newest_arrays(path)["lm/softmax/W"]

    is_stopped = {"should_stop": lambda: True}
    lengths = np.linalg.norm(rows(tmp_path / "run", **is_stopped), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=0.1)  # after the first step
    again = rows(tmp_path / "again")
    monkeypatch.delattr("bilm.runs.prepare.word_vectors")
    np.testing.assert_array_equal(rows(tmp_path / "run", resume=True), again)
    monkeypatch.setattr("bilm.runs.loop.Training.estimate", lambda *_: None)  # no step is timed
    shared = {"options": smallest_options(share_embedding_softmax=True), "dry_run": True}
    bilm.train(TRAIN, VOCAB, tmp_path / "shared", **arguments | shared)


THREADS = """
import os
import sys
from tensorflow.config import threading
before = dict(os.environ), os.fstat(2).st_ino
import bilm
bilm.train
assert before == (dict(os.environ), os.fstat(2).st_ino)
from tests.helpers import TRAIN, VOCAB, smallest_options
values = {name: int(value) for name, value in (word.split("=") for word in sys.argv[2:])}
bilm.train(TRAIN, VOCAB, sys.argv[1], options=smallest_options(), seed=1, resume=True, **values)
print(threading.get_intra_op_parallelism_threads())
try:
    bilm.train(TRAIN, VOCAB, sys.argv[1] + "-2", options=smallest_options(), threads=8, max_steps=1)
except bilm.errors.ProcessError as error:
    print(error)
"""


@pytest.mark.slow
def test_threads_are_recorded_and_resumed(tmp_path):
    """A number that no rule gives; when it is resumed without it, and when another one comes too late.

    Importing bilm leaves environment and standard error as they were.
    """
    path = tmp_path / "run"
    for step, given in ((1, ["threads=7"]), (2, [])):
        done = python("-c", THREADS, path, f"max_steps={step}", *given)
        begun, late = done.stdout.splitlines()
        assert begun == "7" and late.startswith("`threads` 8: TensorFlow has begun with 7 in this process")
        assert "threads = 7\n" in (path / "run.toml").read_text()


@pytest.mark.slow
def test_replicas_of_a_scope_around_the_call_are_recorded(tmp_path):
    script = f"""
import bilm, tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    bilm.train("{TRAIN}", "{VOCAB}", "run", options={helpers.SMALLEST!r}, seed=1, max_steps=2, max_time=0.001)
"""
    done = python("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(OptionsError, match="n_gpus"):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", options=helpers.SMALLEST, seed=1, max_steps=2, resume=True)
