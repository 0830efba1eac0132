"""Training from Python, without the command line, and as scripts of bilm-tf call it."""

import dataclasses
import gc
import inspect
import itertools
import json
import os
import random
import re
import shutil
import signal
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm import training
from bilm.cli import main
from bilm.data import BidirectionalLMDataset, LMDataset, UnicodeCharsVocabulary
from bilm.embedding.scoring import Scorer
from bilm.errors import ArgumentError, BilmError, DataError, OptionsError
from bilm.options import Options
from bilm.run_directory.records import read_calls
from bilm.runs import loop, prepare
from bilm.runs.settings import ARGUMENTS, HYPER_PARAMETERS, TrainingSettings, read_arguments
from bilm.training import load_options_latest_checkpoint, load_vocab, train
from tests import helpers
from tests.corpora import write
from tests.helpers import CHAR, HELDOUT, SMALLEST, TRAIN, VOCAB, newest_arrays, run, small_options, snapshot

OPTIONS = Options.from_json(SMALLEST)


def n_graphs():
    """The number of graphs in memory, which keep all that they refer to."""
    gc.collect()
    return sum(type(value).__name__ == "FuncGraph" for value in gc.get_objects())


def test_train_resume_restart_test_dump(tmp_path):
    """The whole way; the command line tests what Python trained."""
    path, steps, validations = tmp_path / "run", [], []
    reporter = helpers.reporting(step=steps.append, heldout=validations.append)
    same = {"options": OPTIONS, "heldout_prefix": [HELDOUT], "eval_every": 2, "max_steps": 4}
    stop = {"reporter": reporter, "should_stop": lambda: bool(validations)}
    result = bilm.train(TRAIN, VOCAB, path, seed=3, **stop, **same)
    assert (result.outcome, result.stop_reason) == ("stopped", "a stop was requested")
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
    before = n_graphs()
    resumed = bilm.train(str(TRAIN), str(VOCAB), str(path), resume=True, **same)
    assert n_graphs() == before  # a training keeps no model
    assert (resumed.outcome, resumed.step, resumed.stop_reason) == ("finished", 4, None)
    before, tuned = snapshot(path), tmp_path / "tuned"
    values = {"freeze": "encoder", "max_steps": 1, "learning_rate": 0.05}
    result = bilm.restart(HELDOUT, path, checkpoint=2, save_to=tuned, **values)
    call = json.loads((tuned / "calls.jsonl").read_text().splitlines()[-1])["command"]
    assert call.endswith(f"{str(tuned)!r}, freeze='encoder', max_steps=1, learning_rate=0.05)")
    assert (result.outcome, result.step, result.best_perplexity) == ("finished", 3, None)
    assert snapshot(path) == before
    options = bilm.RunDirectory.open(tuned).options
    assert options.learning_rate == 0.05 and options.n_tokens_vocab == 73
    old, new = bilm.RunDirectory.open(path).weights(2), bilm.RunDirectory.open(tuned).weights()
    changed = [name for name in new if (new[name] != old[name]).any()]
    assert {name.partition("/")[0] for name in changed} == {"softmax"}  # the encoder is frozen

    tested = bilm.test([HELDOUT], tuned)
    printed = json.loads(
        run("test", "--test-prefix", HELDOUT, "--save-dir", tuned, "--json").splitlines()[-1]
    )
    assert printed["perplexity"] == pytest.approx(tested.perplexity, rel=1e-6)
    assert tested.step == 3 and tested.tokens == 747 and 0 <= tested.oov_rate < 1

    dump = bilm.dump_weights(tuned, tmp_path / "weights.hdf5")
    assert dump.n_arrays == 4 and dump.options_file == tmp_path / "options.json"
    assert bilm.ElmoEmbedder(dump.options_file, dump.weight_file, VOCAB).n_layers == 2


@pytest.mark.parametrize("has_fast_bfloat16", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dry_run_writes_nothing(tmp_path, monkeypatch, capsys, has_fast_bfloat16):
    monkeypatch.setattr(loop, "multiplies_bfloat16", lambda: has_fast_bfloat16)
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, dry_run=True)
    assert result.outcome == "dry run" and result.saved is None and list(tmp_path.iterdir()) == []
    assert result.estimate.n_left == result.estimate.n_steps > 100 and result.estimate.seconds > 0
    assert (result.estimate.bfloat16_seconds is not None) == has_fast_bfloat16
    printed = capsys.readouterr().err
    assert "\ntiming: 6 steps, " in printed
    (n_parameters,) = re.findall(r"^model: (\S+) parameters", printed, re.MULTILINE)
    moments = result.estimate.kept_bytes - 8 * int(n_parameters.replace(",", ""))  # as many as weights
    assert 0 <= moments < 100 and result.estimate.peak_bytes > 1 << 27


def test_estimate_takes_median_of_later_steps(tmp_path, monkeypatch):
    seconds = iter([9.0, 1.0, 5.0, 2.0, 4.0, 3.0])
    reports = (types.SimpleNamespace(seconds=number) for number in seconds)
    monkeypatch.setattr(loop, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(loop, "training_steps", lambda *_: reports)
    call = {"options": OPTIONS, "max_steps": 4, "dry_run": True}
    found = bilm.train(TRAIN, VOCAB, tmp_path / "run", **call, changes={"accumulate": 2}).estimate
    assert (found.first_step_seconds, found.step_seconds, found.n_timed) == (9.0, 3.0, 6)
    assert found.tokens_per_second == 2 * 3 * 2 / 3.0  # rows, steps of a window and parts
    assert dataclasses.replace(found, n_left=2).seconds == 9.0 + 3.0


@pytest.mark.parametrize(
    ("memory", "free", "message"),
    [(125, 400, None), (124, 400, "training needs more memory"), (125, 399, "4 checkpoints do not fit")],
    ids=["room", "memory", "disk"],
)
def test_size_warns_without_room(memory, free, message, tmp_path, monkeypatch):
    """Weights and optimizer have 100 bytes; two checkpoints are kept, besides the best and the next one."""
    monkeypatch.setattr(prepare, "memory_bytes", lambda: memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))
    model = types.SimpleNamespace(count_params=lambda: 0)  # without gradients
    trainer, warnings = types.SimpleNamespace(n_bytes=100, model=model), []
    reporter = helpers.reporting(warn=warnings.append)
    prepare.tell_size(trainer, tmp_path, TrainingSettings(), reporter)
    assert [warning[: len(message or "")] for warning in warnings] == ([message] if message else [])
    warnings.clear()
    (tmp_path / "model.ckpt-1.index").write_text("1")  # which a resumed run replaces
    prepare.tell_size(trainer, tmp_path, TrainingSettings(resume=True), reporter)
    assert len(warnings) == (memory == 124)


def test_train_warns_of_shared_sentences_and_token_counts(tmp_path, monkeypatch):
    """A heldout text that is trained on or not tokenised, and a number of tokens that is another text's."""
    monkeypatch.setattr("bilm.runs.loop.Training.estimate", lambda *_: None)  # no step is timed
    (tmp_path / "heldout").write_text(HELDOUT.read_text() + TRAIN.read_text())
    both, seen = tmp_path / "heldout", "heldout: 79% of the words are in sentences"
    raw = write(tmp_path / "raw", "the a the a,\n" * 9)
    number = "`n_train_tokens` is {}, and the corpus has 2,890 tokens: an epoch reads it {} times"
    for heldout, n_train_tokens, told in (
        (HELDOUT, 5780, []),
        (raw, 5780, ["heldout: 25% of the words end"]),
        (HELDOUT, 28_900, [number.format("28,900", "10.00")]),
        (both, 1445, [seen]),
        (both, 1444, [seen, number.format("1,444", "0.50")]),
    ):
        warnings = []
        arguments = {"options": OPTIONS, "dry_run": True, "heldout_prefix": heldout}
        arguments |= {"n_train_tokens": n_train_tokens, "reporter": helpers.reporting(warn=warnings.append)}
        bilm.train(TRAIN, VOCAB, tmp_path / "run", **arguments)
        assert len(warnings) == len(told)
        assert all(warning.startswith(text) for warning, text in zip(warnings, told, strict=True))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"overwrite": True, "resume": True}, ArgumentError, "`overwrite` and `resume` exclude each other"),
        ({"preset": "huge"}, OptionsError, "`preset` is 'huge'; there are "),
        ({"recipe": ""}, OptionsError, "`recipe` is '', not one of auto, "),
        ({"options": "{" * 5000}, OptionsError, "File name too long"),
        ({"train_prefix": {"a": 1}}, ArgumentError, "`train_prefix` is {'a': 1}; expected files"),
        ({"preset": "tiny", "train_prefix": "nothing/*.txt"}, DataError, "nothing"),
        ({"preset": "tiny", "vocab_file": "nowhere.txt"}, BilmError, "nowhere.txt"),
        ({"preset": "tiny", "n_gpus": 64}, OptionsError, "`n_gpus` 64: TensorFlow finds "),
    ],
    ids=lambda value: next(reversed(value)) if isinstance(value, dict) else "",
)
def test_train_refuses_wrong_arguments(tmp_path, wrong, error, message):
    arguments = {"train_prefix": TRAIN, "vocab_file": VOCAB, "save_dir": tmp_path / "run"} | wrong
    with pytest.raises(error) as caught:
        bilm.train(**arguments)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "give `model`, a run directory"),
        ({"save_dir": "run", "remap_vocab": True}, "`remap_vocab` needs the new `vocab_file`"),
        ({"save_dir": "run", "old_vocab_file": "old.txt"}, "`old_vocab_file` needs `remap_vocab`"),
        ({"save_dir": "run", "freeze": "lstm"}, "`freeze` is 'lstm', not one of encoder, softmax, none"),
    ],
    ids=["no model", "no vocabulary", "old", "freeze"],
)
def test_restart_refuses_wrong_arguments(wrong, message):
    with pytest.raises(OptionsError, match=message):
        bilm.restart(TRAIN, **wrong)


def test_arguments_equal_flags():
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
        assert differ <= {"train_prefix", "changes", "eval_every", "save_every"}  # () and None


def test_bilm_tf_names_are_importable():
    """Their names, from where bilm-tf has them."""
    from bilm import training
    from bilm.elmo import weight_layers
    from bilm.model import BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings

    for one in (weight_layers, BidirectionalLanguageModel, dump_bilm_embeddings, dump_token_embeddings):
        assert getattr(bilm, one.__name__) is one
    assert training.dump_weights is bilm.dump_weights


# --- the process of the caller --------------------------------------------------------------------


def test_train_restores_process_state_and_runs_alone(tmp_path, monkeypatch):
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
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
        os.chdir(tmp_path / "elsewhere")
        return False

    tf.config.experimental.enable_tensor_float_32_execution(True)
    before = states()
    arguments = {"options": OPTIONS, "max_steps": 2, "save_every": 1, "seed": 1}
    result = bilm.train(TRAIN, VOCAB, "run", should_stop=callback, **arguments)
    assert states() == before and not (tmp_path / "other").exists()
    assert result.saved == Path("run/model.ckpt-2") and result.save_dir == Path("run")
    assert (tmp_path / "run" / "model.ckpt-2.index").is_file()
    allowed = []
    told = helpers.reporting(say=lambda line: allowed.append(states()[-1]))
    bilm.test(HELDOUT, tmp_path / "run", reporter=told)
    assert allowed and not any(allowed) and states()[-1]
    allowed.clear()
    bilm.test(HELDOUT, tmp_path / "run", reporter=told, precision="tf32")
    assert allowed and all(allowed)
    tf.config.experimental.enable_tensor_float_32_execution(False)


def test_missing_text_is_told_before_the_model_is_read(monkeypatch):
    monkeypatch.setattr(Scorer, "from_stored", helpers.raising(AssertionError("it was read")))
    with pytest.raises(DataError, match="no file matches none.txt"):
        bilm.test("none.txt", CHAR / "final")


@pytest.mark.usefixtures("default_handlers")
def test_keyboard_interrupt_saves_the_step(tmp_path):
    asked = itertools.count(1)

    def interrupt():
        if next(asked) == 2:
            signal.raise_signal(signal.SIGINT)
        return False

    numbers = {"max_steps": np.int64(3), "seed": np.uint8(1), "learning_rate": np.float32(0.5)}
    call = {"options": OPTIONS, **numbers, "should_stop": interrupt}
    with pytest.raises(KeyboardInterrupt, match="resume=True continues it"):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", **call)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (tmp_path / "run" / "model.ckpt-2.index").is_file()
    assert bilm.train(TRAIN, VOCAB, tmp_path / "run", **call, resume=True).step == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # without an interrupt as well
    with ThreadPoolExecutor(1) as thread:  # which may set no handler
        again = thread.submit(bilm.train, TRAIN, VOCAB, tmp_path / "run", **call, resume=True)
    assert again.result().outcome == "finished"
    assert read_arguments(tmp_path / "run" / "run.toml")["options"]["learning_rate"] == 0.5


@pytest.mark.parametrize("is_handled", [False, True])
@pytest.mark.usefixtures("default_handlers")
def test_second_keyboard_interrupt_ends_at_once(tmp_path, is_handled):
    """Unless the caller handles them."""
    handled, is_interrupted = [], False

    def interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return True

    def handle(*_):
        handled.append(signal.SIGINT)

    call = {"options": OPTIONS, "max_steps": 2, "seed": 1, "should_stop": interrupt}
    own = handle if is_handled else signal.default_int_handler
    signal.signal(signal.SIGINT, own)
    try:
        bilm.train(TRAIN, VOCAB, tmp_path / "run", **call)
    except KeyboardInterrupt:
        is_interrupted = True
    assert signal.getsignal(signal.SIGINT) is own
    assert is_interrupted is not is_handled and len(handled) == 2 * is_handled
    assert (tmp_path / "run").exists() == is_handled


@pytest.mark.slow
def test_relative_paths_survive_chdir(tmp_path, monkeypatch):
    """In each text's report, before the next text is read, and in the records."""
    tmp_path /= "[a] b"  # no pattern
    (tmp_path / "texts").mkdir(parents=True)
    for name, file in (("texts/a.txt", TRAIN), ("heldout.txt", HELDOUT), ("vocab.txt", VOCAB)):
        shutil.copy(file, tmp_path / name)
    reporter = helpers.reporting(say=lambda line: os.chdir("/"))
    arguments = {"options": OPTIONS, "max_steps": 1, "seed": 1, "heldout_prefix": ["heldout.txt"]}
    monkeypatch.chdir(tmp_path)
    bilm.train(Path("texts").glob("*.txt"), "vocab.txt", "run", reporter=reporter, **arguments)
    recorded = read_arguments(tmp_path / "run" / "run.toml")
    assert recorded["train_prefix"] == (f"{tmp_path}/texts/a.txt",)
    assert recorded["heldout_prefix"] == (f"{tmp_path}/heldout.txt",)
    assert recorded["vocab_file"] == f"{tmp_path}/vocab.txt"
    (call,) = read_calls(tmp_path / "run" / "calls.jsonl")
    assert call.command.startswith("bilm.train(train_prefix='texts/a.txt', vocab_file='vocab.txt', save_dir=")
    monkeypatch.chdir(tmp_path)
    again = bilm.restart("texts/*.txt", "run", save_to="to", max_steps=1, reporter=reporter)
    assert again.saved == Path("to/model.ckpt-2")
    monkeypatch.chdir(tmp_path)
    assert bilm.test("heldout.txt", "run", reporter=reporter).tokens == 747
    monkeypatch.chdir(tmp_path)
    dataset = bilm.LMDataset("texts", bilm.Vocabulary("vocab.txt"))
    os.chdir("/")
    assert next(dataset.iter_batches(1, 2))["token_ids"].shape == (1, 2)


def test_max_time_leaves_margin_of_longest_step(tmp_path, monkeypatch):
    """Step 1 takes 100 seconds, since it is compiled, 4 three, the others one; the next one ends in time."""
    now = time.monotonic()

    def tell(report):
        nonlocal now
        now += {1: 100.0, 4: 3.0}.get(report.step, 1.0)

    clock = types.SimpleNamespace(monotonic=lambda: now, time=time.time)
    monkeypatch.setattr("bilm.runs.loop.time", clock)
    monkeypatch.setattr("bilm.runs.settings.time", clock)
    reporter = helpers.reporting(step=tell)
    result = bilm.train(TRAIN, VOCAB, tmp_path / "run", options=OPTIONS, max_time="1.9m", reporter=reporter)
    assert (result.outcome, result.step) == ("stopped", 10)


def test_rows_are_those_of_bilm_tfs_number():
    with pytest.raises(ArgumentError, match="`batch_size` needs `compat`"):
        bilm.test(HELDOUT, "run", batch_size=2)


# --- calls as in the scripts of bilm-tf's bin, edited by users --------------------------------------


@pytest.mark.slow
def test_edited_bilm_tf_scripts_run(tmp_path):
    save_dir, outfile = str(tmp_path / "run"), str(tmp_path / "weights.hdf5")
    vocab = load_vocab(str(VOCAB), 50)
    options = small_options(char_cnn={"max_characters_per_token": 50}, lstm={"n_layers": 1})
    options |= {"n_epochs": 2, "n_train_tokens": 120, "n_tokens_vocab": vocab.size, "batch_size": 4}
    options |= {"unroll_steps": 5, "all_clip_norm_val": 10.0, "softmax_bias_init": "unigram"}
    data = BidirectionalLMDataset(str(TRAIN), vocab, test=False, shuffle_on_load=False)
    train(options, data, 1, save_dir, save_dir)
    assert newest_arrays(save_dir)["global_step"] == 12  # 2 epochs of 120 tokens, 20 in a batch
    written = json.loads((tmp_path / "run" / "options.json").read_text())
    assert (written["optimizer"], written["learning_rate"]) == ("adagrad", 0.2)
    assert not written["variational_dropout"] and written["softmax_bias_init"] == "unigram"
    assert "shuffle = false\n" in (tmp_path / "run" / "run.toml").read_text()
    options, checkpoint = load_options_latest_checkpoint(save_dir)
    vocab = load_vocab(str(VOCAB), options["char_cnn"]["max_characters_per_token"])
    data = BidirectionalLMDataset(str(TRAIN), vocab, test=False, shuffle_on_load=True)
    options |= {"n_train_tokens": 100, "n_epochs": 1, "batch_size": 2}
    train(options, data, 1, save_dir, save_dir, restart_ckpt_file=checkpoint)
    assert newest_arrays(save_dir)["global_step"] == 22  # 100 more tokens, 10 in a batch
    options, checkpoint = load_options_latest_checkpoint(save_dir)
    data = BidirectionalLMDataset(str(HELDOUT), vocab, test=True, shuffle_on_load=False)
    perplexity = training.test(options, checkpoint, data, batch_size=2)
    assert perplexity == bilm.test(HELDOUT, save_dir, batch_size=2, compat="bilm-tf").perplexity
    training.dump_weights(save_dir, outfile)
    assert bilm.ElmoEmbedder.from_model(outfile).embed_sentence(["So", "it", "does"]).shape == (2, 3, 8)


@pytest.mark.slow
def test_bilm_tf_test_gives_its_perplexity(capsys):
    [(batch_size, expected), *_] = json.loads((CHAR / "expected.json").read_text())[
        "test_perplexity_by_batch_size"
    ].items()
    options, checkpoint = load_options_latest_checkpoint(CHAR / "final")
    options["lstm"] = {key: options["lstm"][key] for key in ("dim", "projection_dim")}  # others by default
    data = BidirectionalLMDataset(HELDOUT, load_vocab(VOCAB, 50), test=True)
    perplexity = training.test(options, checkpoint, data, batch_size=int(batch_size))
    np.testing.assert_allclose(perplexity, expected, rtol=2e-6)
    assert f"AVERAGE PERPLEXITY = {perplexity}" in capsys.readouterr().err


def test_bilm_tf_restart_takes_n_train_tokens(trained, tmp_path):
    """Also where it is that of the run."""
    path = shutil.copytree(trained, tmp_path / "run")
    written = json.loads((path / "options.json").read_text()) | {"n_train_tokens": 120}
    (path / "options.json").write_text(json.dumps(written))
    options, checkpoint = load_options_latest_checkpoint(path)
    assert options["n_train_tokens"] == 120
    result = train(options, LMDataset(TRAIN, load_vocab(VOCAB)), 1, path, path, checkpoint)
    assert result.step == 22  # 2 before, and 120 tokens in batches of 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["directory", "model.ckpt-2", "model"])
def test_bilm_tf_restart_takes_any_checkpoint_name(trained, tmp_path, name):
    """A directory stands for its newest; DeepPavlov's files have no step in their name."""
    path = shutil.copytree(trained, tmp_path / "run")
    if name == "model":
        for file in [*path.glob("model.ckpt-2.*")]:
            file.rename(path / file.name.replace("model.ckpt-2", "model"))
        (path / "checkpoint").write_text('model_checkpoint_path: "model"\n')
    options, newest = load_options_latest_checkpoint(path)
    assert newest == str(path / ("model" if name == "model" else "model.ckpt-2"))
    # numbers as scripts compute them
    options |= {"n_epochs": 1.0, "batch_size": np.int64(2), "n_train_tokens": 0.06e3, "char_cnn": None}
    checkpoint = path if name == "directory" else path / name
    data = LMDataset(TRAIN, load_vocab(VOCAB))
    result = train(options, data, 1, path, restart_ckpt_file=checkpoint, tf_log_dir=path, max_steps=1)
    assert result.saved == path / "model.ckpt-3"


@pytest.mark.slow
def test_bilm_tf_restart_elsewhere_leaves_source(tmp_path):
    source = shutil.copytree(CHAR / "final", tmp_path / "theirs")
    before = newest_arrays(source)
    options, checkpoint = load_options_latest_checkpoint(source)
    data = BidirectionalLMDataset(TRAIN, load_vocab(VOCAB, 50))
    result = train(options, data, 1, tmp_path / "ours", None, checkpoint, max_steps=1)
    assert result.step == 13 and str(result.saved) == str(tmp_path / "ours" / "model.ckpt-13")
    assert newest_arrays(source).keys() == before.keys()
    written = json.loads((tmp_path / "ours" / "options.json").read_text())
    assert written["variational_dropout"] is False


class Lowercased(BidirectionalLMDataset):
    """A dataset in the form of bilm-tf's, whose methods read one shard at a time."""

    def _load_shard(self, shard_name):
        return []


class Folded(UnicodeCharsVocabulary):
    def word_to_id(self, word):
        return super().word_to_id(word.lower())


def test_bilm_tf_calls_refuse_wrong_arguments(tmp_path):
    options, checkpoint = load_options_latest_checkpoint(CHAR / "final")
    data, text = (
        BidirectionalLMDataset(HELDOUT, load_vocab(VOCAB, 50), test=is_test) for is_test in (False, True)
    )
    bare = LMDataset(TRAIN, UnicodeCharsVocabulary.from_words(["a"]))
    folded = BidirectionalLMDataset(HELDOUT, Folded(VOCAB, 50))
    patched = BidirectionalLMDataset(HELDOUT, load_vocab(VOCAB, 50))
    patched.iter_batches = lambda *_: iter(())
    for call, message in (
        (lambda: train(options, text, 1, tmp_path), "with test=False"),
        (lambda: train(options, data, 64, tmp_path), "`n_gpus` 64: TensorFlow finds"),
        (lambda: training.test(options, checkpoint, data), "with test=True"),
        (
            lambda: training.test(options | {"lstm": {}}, checkpoint, text),
            "lstm differ from those of .*ckpt-12",
        ),
        (lambda: training.test(options, CHAR / "final" / "weights", text), "'weights'"),
        (lambda: train(options, bare, 1, tmp_path), "its vocabulary has no file"),
        (lambda: train(options, data, 1, tmp_path, checkpoint), "ckpt-12; name it restart_ckpt_file="),
        (lambda: train(data, options, 1, tmp_path), "`options` is .*; it must be a dictionary"),
        (lambda: train(options, folded, 1, tmp_path), "a class of your own may change how text is read"),
        (lambda: train(options, patched, 1, tmp_path), "a class of your own may change how text is read"),
    ):
        with pytest.raises(OptionsError, match=message):
            call()
    for kind, width, message in (
        (Lowercased, 50, "a class of your own may change how text is read, .* write the changed text to a"),
        (LMDataset, 50, "`options` are bidirectional; make it with BidirectionalLMDataset"),
        (BidirectionalLMDataset, 20, "max_word_length 20, and `options` max_characters_per_token 50"),
        (BidirectionalLMDataset, None, r"max_word_length None, and .* make it with load_vocab\(FILE, 50\)"),
    ):
        for is_test in (False, True):
            read = kind(HELDOUT, load_vocab(VOCAB, width), test=is_test)
            with pytest.raises(ArgumentError, match=message):
                training.test(options, checkpoint, read) if is_test else train(options, read, 1, tmp_path)


def test_bilm_tf_train_warns_of_log_directory(tmp_path, caplog):
    train(SMALLEST, LMDataset(TRAIN, load_vocab(VOCAB)), 1, tmp_path / "run", tmp_path / "logs", dry_run=True)
    assert f"logs: not used; TensorBoard's files are in {tmp_path / 'run'}" in caplog.text
