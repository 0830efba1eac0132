"""Training from Python, without the command line."""

import inspect
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.cli import main
from bilm.errors import ArgumentError, BilmError, DataError, OptionsError
from bilm.options import Options
from bilm.runs.settings import ARGUMENTS, HYPER_PARAMETERS, TrainingSettings
from tests.helpers import HELDOUT, SMALLEST, TRAIN, VOCAB, combined_perplexity, run, snapshot

OPTIONS = Options.from_json(SMALLEST)


def test_train_resume_restart_test_dump(tmp_path):
    """The whole way; the command line tests what Python trained."""
    path, steps, validations = tmp_path / "run", [], []
    reporter = bilm.Reporter()
    reporter.step, reporter.heldout = steps.append, validations.append
    same = {"options": OPTIONS, "heldout_prefix": [HELDOUT], "eval_every": 2, "max_steps": 4}
    stop = {"reporter": reporter, "should_stop": lambda: bool(validations)}
    result = bilm.train(TRAIN, VOCAB, path, seed=3, **stop, **same)
    assert (result.outcome, result.stop_reason) == ("stopped", "was asked to")
    assert result.step == 2 and result.saved == path / "model.ckpt-2" and result.save_dir == path
    assert result.best_step == 2 and result.best_checkpoint == result.saved
    assert 1 < result.best_perplexity < 1000
    assert [report.step for report in steps] == [1, 2] and validations[0].step == 2
    call = json.loads((path / "calls.jsonl").read_text())["command"]
    assert call.startswith(f"bilm.train(train_prefix={str(TRAIN)!r}, vocab_file=")
    assert "options=Options(...)" in call and "seed=3" in call and "preset" not in call

    bilm.use_xla(False)
    try:
        with pytest.raises(OptionsError, match=r"cannot be resumed with XLA \(true to false\)"):
            bilm.train(TRAIN, VOCAB, path, resume=True, **same)
    finally:
        bilm.use_xla(True)
    resumed = bilm.train(str(TRAIN), str(VOCAB), str(path), resume=True, **same)
    assert (resumed.outcome, resumed.step) == ("finished", 4)
    before, tuned = snapshot(path), tmp_path / "tuned"
    result = bilm.restart(HELDOUT, path, checkpoint=2, save_to=tuned, max_steps=1, learning_rate=0.05)
    assert (result.outcome, result.step, result.best_perplexity) == ("finished", 3, None)
    assert snapshot(path) == before
    options = bilm.RunDirectory.open(tuned).options
    assert options.learning_rate == 0.05 and options.n_tokens_vocab == 73

    tested = bilm.test([HELDOUT], tuned)
    printed = run("test", "--test-prefix", HELDOUT, "--save-dir", tuned)
    assert combined_perplexity(printed) == pytest.approx(tested.perplexity, abs=1e-4)
    assert tested.step == 3 and tested.tokens == 747 and 0 <= tested.oov_rate < 1

    dump = bilm.dump_weights(tuned, tmp_path / "weights.hdf5")
    assert dump.n_arrays == 4 and dump.options_file == tmp_path / "options.json"
    assert bilm.ElmoEmbedder(dump.options_file, dump.weight_file, VOCAB).n_layers == 2


def test_a_dry_run_writes_nothing(tmp_path):
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, dry_run=True)
    assert result.outcome == "dry run" and result.saved is None and list(tmp_path.iterdir()) == []
    assert result.estimate.n_left == result.estimate.n_steps > 100 and result.estimate.seconds > 0


def test_a_heldout_text_that_is_trained_on_is_told(tmp_path):
    (tmp_path / "heldout").write_text(HELDOUT.read_text() + TRAIN.read_text())
    message = "heldout: 79% of the words are in sentences"
    for heldout, told in ((HELDOUT, []), (tmp_path / "heldout", [message])):
        warnings, reporter = [], bilm.Reporter()
        reporter.warn = warnings.append
        arguments = {"options": OPTIONS, "dry_run": True, "heldout_prefix": heldout, "reporter": reporter}
        bilm.train(TRAIN, VOCAB, tmp_path / "run", **arguments)
        assert [warning[: len(message)] for warning in warnings] == told


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"overwrite": True, "resume": True}, ArgumentError, "`overwrite` and `resume` exclude each other"),
        ({"vocab_file": None}, ArgumentError, "`vocab_file` is None; it must be a path"),
        ({"preset": "huge"}, OptionsError, "`preset` is 'huge'; there are "),
        ({"recipe": "none"}, OptionsError, "`recipe` is 'none', not one of auto, "),
        ({"preset": "tiny", "train_prefix": "nothing/*.txt"}, DataError, "nothing"),
        ({"preset": "tiny", "vocab_file": "nowhere.txt"}, BilmError, "nowhere.txt"),
        ({"preset": "tiny", "n_gpus": 64}, OptionsError, "`n_gpus` 64: TensorFlow finds "),
    ],
    ids=lambda value: next(reversed(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_an_error_of_ours(tmp_path, wrong, error, message):
    arguments = {"train_prefix": TRAIN, "vocab_file": VOCAB, "save_dir": tmp_path / "run"} | wrong
    with pytest.raises(error) as caught:
        bilm.train(**arguments)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, r"give one `model` \(or `save_dir`, or `options_file` and `weight_file`\)"),
        ({"save_dir": "run", "remap_vocab": True}, "`remap_vocab` needs the new `vocab_file`"),
        ({"save_dir": "run", "old_vocab_file": "old.txt"}, "`old_vocab_file` needs `remap_vocab`"),
        ({"save_dir": "run", "freeze": "lstm"}, "`freeze` is 'lstm', not one of encoder, softmax, none"),
    ],
    ids=["no model", "no vocabulary", "old", "freeze"],
)
def test_what_is_wrong_with_a_restart(wrong, message):
    with pytest.raises(OptionsError, match=message):
        bilm.restart(TRAIN, **wrong)


def test_settings_and_flags_agree():
    """Every flag is an argument, with the same default, and every argument a flag."""
    fields = set(TrainingSettings.__dataclass_fields__) - {"values"}
    assert fields | set(HYPER_PARAMETERS) | {"changes"} == set(ARGUMENTS)
    for name, function in (("train", bilm.train), ("restart", bilm.restart)):
        defaults = {field: None for field in (*HYPER_PARAMETERS, "changes")}
        defaults |= {field: getattr(TrainingSettings(), field) for field in fields}
        defaults |= {one: taken.default for one, taken in inspect.signature(function).parameters.items()}
        flags = (
            main.get_command(None, name)
            .make_context(name, [], resilient_parsing=True, **main.context_settings)
            .params
        )
        for of_others in ("ray_workers", "cpus_per_worker", "gpus_per_worker", "no_xla", "config"):
            flags.pop(of_others, None)
        taken = set(defaults) - {"reporter", "should_stop", "settings"}
        assert taken == set(flags)
        differ = {one for one in taken if flags[one] != defaults[one]}
        no_default = {"train_prefix", *(["vocab_file", "save_dir"] if name == "train" else [])}
        assert differ <= no_default | {"changes", "eval_every"}  # () and None


def test_what_scripts_of_bilm_tf_import():
    """Their names, from where bilm-tf has them."""
    from bilm import training
    from bilm.elmo import weight_layers
    from bilm.model import BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings

    for one in (weight_layers, BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings):
        assert getattr(bilm, one.__name__) is one
    assert training.dump_weights is bilm.dump_weights


# --- the process of the caller --------------------------------------------------------------------


def test_the_process_is_left_as_it_was_and_trains_once_at_a_time(tmp_path, monkeypatch):
    """A callback may train no other model, but may change the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def states():
        allowed = tf.config.experimental.tensor_float_32_execution_enabled()
        numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002 - which is the caller's
        return random.getstate(), numpy_state, allowed

    def callback():
        with pytest.raises(ArgumentError, match="another call trains in this process"):
            bilm.train(TRAIN, VOCAB, tmp_path / "other", options=OPTIONS, max_steps=1)
        os.chdir(tmp_path / "elsewhere")
        return False

    tf.config.experimental.enable_tensor_float_32_execution(True)
    before = states()
    arguments = {"options": OPTIONS, "max_steps": 2, "save_every": 1, "seed": 1}
    result = bilm.train(TRAIN, VOCAB, "run", should_stop=callback, **arguments)
    assert states() == before and not (tmp_path / "other").exists()
    assert result.saved == Path("run/model.ckpt-2") and result.save_dir == Path("run")
    assert (tmp_path / "run" / "model.ckpt-2.index").is_file()


def test_the_text_of_a_batch_that_diverged_stays_before_the_first_checkpoint(tmp_path):
    with pytest.raises(BilmError, match=r"its text is in .*diverged-\d+\.txt"):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, optimizer="sgd", learning_rate=1e30)
    (text,) = (tmp_path / "run").glob("diverged-*.txt")
    assert text.read_text()
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, max_steps=1)
    assert result.step == 1 and not text.exists()


def test_rows_are_those_of_bilm_tfs_number():
    with pytest.raises(ArgumentError, match="`batch_size` needs `compat`"):
        bilm.test(HELDOUT, "run", batch_size=2)
