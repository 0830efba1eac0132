"""Training from Python, without the command line."""

from __future__ import annotations

import ast
import inspect
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.cli import main
from bilm.errors import ArgumentError, BilmError, CheckpointError, DataError, OptionsError
from bilm.options import Options
from bilm.runs.call import StopQuestion
from bilm.runs.settings import HYPER_PARAMETERS, SettingsArguments, TrainingSettings
from docs.generate import modules
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    SMALLEST,
    TRAIN,
    VOCAB,
    combined_perplexity,
    run,
    snapshot,
    train_command,
    write_json,
)

OPTIONS = Options.from_json(SMALLEST)


class Recorder(bilm.Reporter):
    """Keeps what it is told, and asks for an end when the heldout text was scored."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[int] = []
        self.heldout_steps: list[int] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, report: Any) -> None:
        self.steps.append(report.step)

    def heldout(self, record: Any) -> None:
        self.heldout_steps.append(record.step)

    def is_enough(self) -> bool:
        return bool(self.heldout_steps)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bilm.runs.reporter.TrainingResult]:
    """Two steps of four, stopped."""
    path = tmp_path_factory.mktemp("trained") / "run"
    recorder = Recorder()
    result = bilm.train(
        TRAIN,
        VOCAB,
        path,
        options=OPTIONS,
        max_steps=4,
        seed=3,
        heldout_prefix=HELDOUT,
        eval_every=2,
        reporter=recorder,
        should_stop=recorder.is_enough,
    )
    assert recorder.steps == [1, 2] and recorder.heldout_steps == [2]
    assert recorder.lines[0].startswith("corpus: 1 file, 240 sentences")
    return path, result


@pytest.fixture
def stopped(trained, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


def test_a_call_that_is_stopped_says_so_and_returns(trained):
    path, result = trained
    assert result.outcome == "stopped" and str(result.outcome) == "stopped"
    assert result.stop_reason == "was asked to"
    assert result.step == 2 and result.saved == path / "model.ckpt-2" and result.save_dir == path
    assert result.best_step == 2 and result.best_checkpoint == result.saved
    assert 1 < result.best_perplexity < 1000
    call = json.loads((path / "calls.jsonl").read_text())["command"]
    assert call.startswith(f"bilm.train(train_prefix={str(TRAIN)!r}, vocab_file=")
    assert "options=Options(...)" in call and "seed=3" in call and "preset" not in call


def test_train_resume_restart_test_dump(stopped, tmp_path):
    """The whole way; the command line goes on with what Python began."""
    same = {"options": OPTIONS, "heldout_prefix": [HELDOUT], "eval_every": 2, "resume": True}
    with pytest.raises(OptionsError, match=r"cannot be resumed with `seed` \(3 to 4\)"):
        bilm.train(TRAIN, VOCAB, stopped, seed=4, max_steps=4, **same)
    resumed = bilm.train(str(TRAIN), str(VOCAB), str(stopped), max_steps=4, **same)
    assert (resumed.outcome, resumed.step) == ("finished", 4)
    given = write_json(tmp_path / "given.json", SMALLEST)
    flags = ("--max-steps", 4, "--resume", "--heldout-prefix", HELDOUT, "--eval-every", 2)
    printed = run(*train_command(stopped, given, *flags))
    assert "nothing left to do" in printed

    before = snapshot(stopped)
    result = bilm.restart(
        HELDOUT, stopped, checkpoint=2, save_to=tmp_path / "tuned", max_steps=1, learning_rate=0.05
    )
    assert (result.outcome, result.step, result.best_perplexity) == ("finished", 3, None)
    assert snapshot(stopped) == before
    tuned = bilm.RunDirectory.open(tmp_path / "tuned")
    assert tuned.options.learning_rate == 0.05 and tuned.options.n_tokens_vocab == 73

    tested = bilm.test([HELDOUT], tuned.path, batch_size=4)
    printed = run("test", "--test-prefix", HELDOUT, "--save-dir", tuned.path, "--batch-size", 4)
    assert combined_perplexity(printed) == pytest.approx(tested.perplexity, abs=1e-4)
    assert tested.step == 3 and tested.tokens == 747 and 0 <= tested.oov_rate < 1

    dump = bilm.dump_weights(tuned.path, tmp_path / "weights.hdf5")
    assert dump.n_arrays == 4 and dump.options_file == tmp_path / "options.json"
    assert bilm.ElmoEmbedder(dump.options_file, dump.weight_file, VOCAB).n_layers == 2


def test_a_dry_run_writes_nothing(tmp_path):
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, dry_run=True)
    assert result.outcome == "dry run" and result.saved is None and list(tmp_path.iterdir()) == []
    assert result.estimate.n_left == result.estimate.n_steps > 100 and result.estimate.seconds > 0


WRONG = [
    ({"preset": "tiny", "options": OPTIONS}, ArgumentError, "`preset` and `options` exclude each other"),
    ({"overwrite": True, "resume": True}, ArgumentError, "`overwrite` and `resume` exclude each other"),
    ({"dropuot": 0.1}, ArgumentError, "`dropuot`: no such argument; did you mean `dropout`?"),
    ({"zzz": 0.1}, ArgumentError, "`zzz`: no such argument; other keys of options.json go in changes="),
    ({"eval_every": 3}, ArgumentError, "`eval_every` needs `heldout_prefix`"),
    ({"patience": 3}, ArgumentError, "`patience` needs `heldout_prefix`"),
    ({"preset": "huge"}, OptionsError, "`preset` is 'huge'; there are "),
    ({"keep": 0}, OptionsError, "`keep`: must be at least 1, got 0"),
    ({"seed": -1}, OptionsError, "`seed`: must be at least 0"),
    ({"save_every": "often"}, OptionsError, "neither a number of steps"),
    ({"preset": "tiny", "dropout": 2.0}, OptionsError, "dropout"),
    ({"preset": "tiny", "changes": {"lstm.dmi": 2}}, OptionsError, "lstm.dmi"),
    ({"preset": "tiny", "train_prefix": "nothing/*.txt"}, DataError, "nothing"),
    ({"preset": "tiny", "vocab_file": "nowhere.txt"}, BilmError, "nowhere.txt"),
    ({"preset": "tiny", "batch_size": 1000}, DataError, "give more text or a smaller `batch_size`"),
    ({"preset": "tiny", "n_gpus": 64}, OptionsError, "`n_gpus` 64: TensorFlow finds "),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG)
def test_what_is_wrong_is_an_error_of_ours(tmp_path, wrong, error, message):
    arguments = {"train_prefix": TRAIN, "vocab_file": VOCAB, "save_dir": tmp_path / "run"} | wrong
    with pytest.raises(error) as caught:
        bilm.train(**arguments)
    assert message in str(caught.value) and not isinstance(caught.value, click.ClickException)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_replaced_unless_told_to(stopped):
    before = snapshot(stopped)
    with pytest.raises(CheckpointError, match=r"give another `save_dir`, or replace it with overwrite=True"):
        bilm.train(TRAIN, VOCAB, stopped, options=OPTIONS)
    assert snapshot(stopped) == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "give `model`, `save_dir`, or `options_file` and `weight_file`, and only one of them"),
        ({"save_dir": "run", "remap_vocab": True}, "`remap_vocab` needs the new `vocab_file`"),
        ({"save_dir": "run", "old_vocab_file": "old.txt"}, "`old_vocab_file` needs `remap_vocab`"),
        ({"save_dir": "run", "freeze": "lstm"}, "`freeze` is 'lstm', not one of encoder, softmax, none"),
    ],
)
def test_what_is_wrong_with_a_restart(wrong, message):
    with pytest.raises(OptionsError) as caught:
        bilm.restart(TRAIN, **wrong)
    assert message in str(caught.value)


def test_a_test_needs_a_vocabulary(stopped):
    for name in ("vocab.txt", "vocab.txt.sha256"):
        (stopped / name).unlink()
    with pytest.raises(ArgumentError, match=r"holds no vocabulary; give `vocab_file`"):
        bilm.test(HELDOUT, stopped)
    with pytest.raises(OptionsError, match="`compat` is 'allennlp'"):
        bilm.test(HELDOUT, stopped, compat="allennlp")


def test_the_time_allowed_ends_early_enough_for_another_step():
    stop = StopQuestion(seconds=100.0)
    assert not stop() and stop.reason is None
    stop._longest = 200.0
    assert stop() and stop.reason == "the time allowed by `max_time` is nearly over"


def test_settings_and_flags_agree():
    """Every flag is an argument, with the same default, and every argument a flag."""
    fields = set(TrainingSettings.__dataclass_fields__) - {"values"}
    assert fields | set(HYPER_PARAMETERS) | {"changes"} == set(SettingsArguments.__annotations__)
    for name, function in (("train", bilm.train), ("restart", bilm.restart)):
        defaults = {field: None for field in (*HYPER_PARAMETERS, "changes")}
        defaults |= {field: getattr(TrainingSettings(), field) for field in fields}
        defaults |= {one: taken.default for one, taken in inspect.signature(function).parameters.items()}
        flags = main.commands[name].make_context(name, [], resilient_parsing=True).params
        flags |= {"checkpoint": flags.pop("which", None)}
        for of_others in ("ray_workers", "cpus_per_worker", "gpus_per_worker"):
            del flags[of_others]
        taken = set(defaults) - {"reporter", "should_stop", "settings"}
        assert taken == set(flags) - ({"checkpoint"} if name == "train" else set())
        differ = {one for one in taken if flags[one] != defaults[one]}
        no_default = {"train_prefix", *(["vocab_file", "save_dir"] if name == "train" else [])}
        assert differ <= no_default | {"changes", "eval_every"}  # () and None


@pytest.mark.parametrize("module", [name for name in modules() if name.startswith("runs")])
def test_nothing_of_the_command_line(module):
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    names = [name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    found = [name.name for name in names]
    found += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in found if name.partition(".")[0] == "click" or name.startswith("bilm.cli")]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not [func for func in calls if isinstance(func, ast.Name) and func.id == "print"]


def test_seconds_allowed_end_a_training(tmp_path):
    started = time.monotonic()
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, max_time=0.5, seed=1)
    assert result.outcome == "stopped" and result.step == 1 and time.monotonic() - started < 60
    assert result.stop_reason == "the time allowed by `max_time` is nearly over"


def test_what_scripts_of_bilm_tf_import():
    """Their names, from where bilm-tf has them."""
    from bilm import training
    from bilm.elmo import weight_layers
    from bilm.model import BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings

    for one in (weight_layers, BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings):
        assert getattr(bilm, one.__name__) is one
    for name in ("train", "test", "dump_weights"):
        assert getattr(training, name) is getattr(bilm, name)
    assert training.load_vocab(str(VOCAB), 50).size == 73
    options, checkpoint = training.load_options_latest_checkpoint(str(GOLDEN / "char" / "final"))
    assert options["batch_size"] == 4 and checkpoint == str(GOLDEN / "char" / "final" / "model.ckpt-12")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = training.nothing


# --- the process of the caller --------------------------------------------------------------------


def test_a_callback_may_change_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def leave():
        os.chdir(tmp_path / "elsewhere")
        return False

    result = bilm.train(TRAIN, VOCAB, "run", options=OPTIONS, max_steps=2, save_every=1, should_stop=leave)
    assert result.saved == Path("run/model.ckpt-2") and result.save_dir == Path("run")
    assert (tmp_path / "run" / "model.ckpt-2.index").is_file()


def test_the_process_is_left_as_it_was_and_trains_once_at_a_time(tmp_path):
    def states():
        allowed = tf.config.experimental.tensor_float_32_execution_enabled()
        numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002 - which is the caller's
        return random.getstate(), numpy_state, allowed

    def nested():
        with pytest.raises(ArgumentError, match="another call trains in this process"):
            bilm.train(TRAIN, VOCAB, tmp_path / "other", options=OPTIONS, max_steps=1)
        return True

    tf.config.experimental.enable_tensor_float_32_execution(True)
    before = states()
    bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, max_steps=2, seed=1, should_stop=nested)
    assert states() == before and not (tmp_path / "other").exists()


def test_the_text_of_a_batch_that_diverged_stays_before_the_first_checkpoint(tmp_path):
    with pytest.raises(BilmError, match=r"its text is in .*diverged-\d+\.txt"):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, optimizer="sgd", learning_rate=1e30)
    (text,) = (tmp_path / "run").glob("diverged-*.txt")
    assert text.read_text()
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, max_steps=1)
    assert result.step == 1 and not text.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overwrite": "no"}, "`overwrite` is 'no'; it must be True or False"),
        ({"max_time": float("nan")}, "max_time"),
        ({"seed": "x"}, "seed"),
    ],
    ids=["a switch", "a time", "a seed"],
)
def test_arguments_of_a_wrong_type_are_named(tmp_path, arguments, message):
    with pytest.raises(BilmError, match=message):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, **arguments)
    assert not (tmp_path / "run").exists()
