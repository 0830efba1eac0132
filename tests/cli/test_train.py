"""`bilm train`, `test` and `restart` from end to end, on the golden text."""

from __future__ import annotations

import gzip
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bilm
from bilm.cli import main
from bilm.options import PRESETS
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    assert_same_arrays,
    checkpoint_arrays,
    combined_perplexity,
    newest,
    refuse,
    run,
    small_options,
    snapshot,
    train_command,
)

ROOT = Path(__file__).resolve().parent.parent.parent
N_TOKENS = 2890  # words and sentence ends of the training text
N_HELDOUT = 747


def train(save_dir, options, *flags):
    return run(*train_command(save_dir, options, *flags))


# --- train ------------------------------------------------------------------------------------------


def test_train_says_what_it_does(trained_whole):
    lines = trained_whole.output.splitlines()
    assert lines[0] == (f"corpus: 1 file, 240 sentences, {N_TOKENS:,} tokens with sentence ends, OOV 4.57%")
    assert re.fullmatch(r"model: [\d,]+ parameters, 73 words, both directions", lines[1])
    assert lines[2] == f"training: 2 steps, {N_TOKENS // 6} per epoch"
    for line, step in zip(lines[3:5], (1, 2), strict=True):
        assert re.fullmatch(
            rf"step {step}  epoch 0\.00  {step * 50}\.0%  sampled loss \d\.\d{{4}}  "
            r"sampled perplexity [\d.]+  [\d,]+ tokens/s  \S+ left",
            line,
        )
    assert lines[5] == f"saved: {trained_whole.path / 'model.ckpt-2'}"
    assert len(lines) == 6


def test_files_of_a_run(trained_whole):
    names = {path.name for path in trained_whole.path.iterdir()}
    (events,) = (name for name in names if name.startswith("events.out.tfevents."))
    assert names - {events} == {
        "bilm-run.json",
        "calls.jsonl",
        "checkpoint",
        "metrics.jsonl",
        "model.ckpt-2.data-00000-of-00001",
        "model.ckpt-2.index",
        "options.json",
        "vocab.txt",
        "vocab.txt.sha256",
    }
    assert (trained_whole.path / "vocab.txt").read_bytes() == VOCAB.read_bytes()


def test_options_of_a_run_are_those_of_bilm_tf_and_ours(trained_whole):
    written = json.loads((trained_whole.path / "options.json").read_text())
    given = small_options()
    assert {key: written[key] for key in given} == given
    assert written["char_cnn"]["n_characters"] == 261
    assert written["n_tokens_vocab"] == 73
    assert written["n_train_tokens"] == N_TOKENS
    assert {"all_clip_norm_val", "sample_softmax", "share_embedding_softmax"} <= written.keys()


def test_checkpoint_has_the_names_of_bilm_tf(trained_whole):
    arrays = checkpoint_arrays(newest(trained_whole.path))
    names = set(arrays)
    for name in (
        "CNN_proj/W_proj",
        "RNN_1/rnn/multi_rnn_cell/cell_0/lstm_cell/projection/kernel",
        "softmax/W",
    ):
        assert {f"lm/{name}", f"lm/{name}/Adagrad"} <= names
    assert arrays["global_step"] == 2
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert any((arrays[name] > 1.0).any() for name in names if name.endswith("/Adagrad"))


def test_the_seed_decides(trained, tmp_path, smallest_file):
    train(tmp_path / "same", smallest_file(), "--max-steps", 2, "--seed", 7)
    assert_same_arrays(checkpoint_arrays(newest(tmp_path / "same")), checkpoint_arrays(newest(trained.path)))


def test_flags_override_the_options_and_go_into_the_run(tmp_path, smallest_file):
    """Underscored spellings, several shards by repetition and by shell, --set, --no-shuffle, --save-every."""
    lines = TRAIN.read_text().splitlines(keepends=True)
    shards = [tmp_path / f"shard-{i}" for i in range(3)]
    for i, shard in enumerate(shards):
        shard.write_text("".join(lines[i * 80 : (i + 1) * 80]))
    output = run(
        *("train", "--train_prefix", shards[0], "--train_prefix", shards[1], shards[2]),
        *("--vocab_file", VOCAB, "--save_dir", tmp_path / "run", "--options", smallest_file()),
        *("--n_epochs", 3, "--batch_size", 3, "--n_train_tokens", 27, "--learning_rate", 0.1),
        *("--dropout", 0, "--set", "sample_softmax=false", "--set", "lstm.cell_clip=2.5"),
        *("--n_gpus", 1, "--save_every", 2, "--no_shuffle", "--seed", 3),
    )
    assert "corpus: 3 files, 240 sentences" in output
    assert "training: 9 steps, 3 per epoch" in output
    assert "sampled" not in output
    assert re.search(r"step 9  epoch 3\.00  100\.0%  loss [\d.]+  perplexity", output)
    written = json.loads((tmp_path / "run" / "options.json").read_text())
    expected = {"n_epochs": 3, "batch_size": 3, "n_train_tokens": 27, "learning_rate": 0.1, "dropout": 0.0}
    assert {key: written[key] for key in expected} == expected
    assert written["lstm"]["cell_clip"] == 2.5 and written["sample_softmax"] is False
    # The newest two are kept: step 8 and the last.
    indices = {path.name for path in (tmp_path / "run").glob("*.index")}
    assert indices == {"model.ckpt-8.index", "model.ckpt-9.index"}


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_presets_are_parsed(preset, tmp_path):
    """A text smaller than a batch stops each before a model of its size is made."""
    text = tmp_path / "text"
    text.write_text("a b\n")
    message = refuse(
        *("train", "--train-prefix", text, "--vocab-file", VOCAB, "--save-dir", tmp_path / "run"),
        *(() if preset is None else ("--preset", preset)),
        *("--set", "lstm.dim=5000"),
    )
    options = PRESETS[preset or "original"]
    assert f"less than one batch of {options.batch_size} rows x {options.unroll_steps} steps" in message
    assert not (tmp_path / "run").exists()


def test_overwrite_starts_a_new_run(run_copy, smallest_file):
    before = checkpoint_arrays(newest(run_copy))
    (run_copy / "notes.txt").write_text("mine")
    train(run_copy, smallest_file(), "--max-steps", 1, "--overwrite")
    after = checkpoint_arrays(newest(run_copy))
    assert after["global_step"] == 1 and before["global_step"] == 2
    assert {path.name for path in run_copy.glob("*.index")} == {"model.ckpt-1.index"}
    assert (run_copy / "notes.txt").read_text() == "mine"


# --- test -------------------------------------------------------------------------------------------


def evaluate(save_dir, *flags, text=HELDOUT):
    output = run("test", "--save-dir", save_dir, "--test-prefix", text, "--json", *flags)
    return output, json.loads(output.splitlines()[-1])


def test_every_target_is_scored_once_whatever_the_batch_size(trained):
    results = [evaluate(trained.path, "--batch-size", size)[1] for size in (1, 7, 300)]
    assert [result["tokens"] for result in results] == [N_HELDOUT] * 3
    for result in results:
        assert result["perplexity"] == pytest.approx(results[0]["perplexity"], rel=0.05)


def test_json_agrees_with_the_printed_line(trained_whole):
    output, result = evaluate(trained_whole.path, "--vocab-file", VOCAB)
    assert set(result) == {"perplexity", "forward_perplexity", "backward_perplexity", "tokens", "oov_rate"}
    assert combined_perplexity(output) == pytest.approx(result["perplexity"], abs=1e-4)
    geometric_mean = (result["forward_perplexity"] * result["backward_perplexity"]) ** 0.5
    assert result["perplexity"] == pytest.approx(geometric_mean, rel=1e-9)
    assert f"({N_HELDOUT} tokens)" in output
    words = HELDOUT.read_text().split()
    known = set(VOCAB.read_text().split())
    assert result["oov_rate"] == pytest.approx(sum(word not in known for word in words) / len(words))
    assert f"OOV {result['oov_rate']:.2%}" in output


def test_several_test_files_count_as_one_text(trained, tmp_path):
    lines = HELDOUT.read_text().splitlines(keepends=True)
    (tmp_path / "a").write_text("".join(lines[:30]))
    (tmp_path / "b").write_text("".join(lines[30:]))
    whole = evaluate(trained.path, "--batch-size", 4)[1]
    assert evaluate(trained.path, "--batch-size", 4, text=tmp_path / "[ab]")[1] == whole


def test_testing_writes_nothing(trained):
    before = snapshot(trained.path)
    evaluate(trained.path)
    assert snapshot(trained.path) == before


# --- restart ----------------------------------------------------------------------------------------


def test_restart_goes_on_and_trains(run_copy):
    before = checkpoint_arrays(newest(run_copy))
    options = (run_copy / "options.json").read_bytes()
    output = run(
        *("restart", "--train_prefix", TRAIN, "--vocab_file", VOCAB, "--save_dir", run_copy),
        *("--max_steps", 2, "--learning-rate", 1e-9, "--no-shuffle"),
    )
    assert f"restarting: {run_copy / 'model.ckpt-2'}, step 2\n" in output
    assert "training: 2 steps" in output
    assert re.search(r"^step 3  epoch 0\.00  50\.0%", output, re.MULTILINE)
    after = checkpoint_arrays(newest(run_copy))
    assert after["global_step"] == 4
    assert (run_copy / "options.json").read_bytes() == options
    # With next to no learning rate the weights show what was restored, and the accumulators go on growing.
    for name, array in before.items():
        if name.endswith("/Adagrad"):
            assert (after[name] >= array).all()
        elif name.startswith("lm/"):
            np.testing.assert_allclose(after[name], array, atol=1e-7, err_msg=name)
    grown = [name for name in before if name.endswith("/Adagrad") and (after[name] > before[name]).any()]
    assert "lm/softmax/W/Adagrad" in grown


def test_train_test_restart_test_dump(tmp_path, smallest_file):
    """The whole road; perplexity falls along it."""
    directory = tmp_path / "run"
    options = smallest_file(batch_size=8, sample_softmax=False, dropout=0, softmax_bias_init="zeros")
    train(directory, options, "--max-steps", 20)
    first = evaluate(directory)[1]["perplexity"]
    run("restart", "--train-prefix", TRAIN, "--save-dir", directory, "--max-steps", 40)
    second = evaluate(directory)[1]["perplexity"]
    assert second < first < 73
    output = run("dump-weights", "--save-dir", directory, "--outfile", tmp_path / "w.hdf5")
    assert f"{directory / 'model.ckpt-60'} -> {tmp_path / 'w.hdf5'}" in output


# --- entry points -----------------------------------------------------------------------------------


def script(*arguments):
    """Run Python on the package under test, installed or not."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(Path(bilm.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_python_m_bilm():
    result = script("-m", "bilm", "--help")
    assert result.returncode == 0
    for verb in ("vocab", "train", "restart", "test", "dump-weights"):
        assert f"\n  {verb} " in result.stdout
    assert result.stderr == ""


@pytest.mark.slow
def test_the_reference_script_ends_with_the_reference_line():
    result = script(
        *(ROOT / "bin" / "run_test.py", "--test_prefix", HELDOUT, "--vocab_file", VOCAB),
        *("--save_dir", GOLDEN / "word-shared" / "final", "--batch_size", 4),
    )
    assert result.returncode == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    match = re.fullmatch(r"FINISHED!  AVERAGE PERPLEXITY = ([\d.]+)", last)
    expected = json.loads((GOLDEN / "word-shared" / "expected.json").read_text())
    expected = expected["test_perplexity_by_batch_size"]["4"]
    assert match and float(match[1]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["train_elmo", "restart", "dump_weights", "run_test"])
def test_scripts_of_bilm_tf_take_its_flags(name, monkeypatch, capsys):
    """Their own flags, whose files do not exist: it is the files that are objected to."""
    flags = {
        "train_elmo": ("--train_prefix", "t", "--vocab_file", "no/such/text", "--save_dir", "no/such/run"),
        "restart": (
            *("--train_prefix", "t", "--vocab_file", VOCAB, "--save_dir", "no/such/run", "--n_gpus", 3),
            *("--batch_size", 0, "--n_epochs=0", "--n_train_tokens", "0"),  # its defaults: as in the run
        ),
        "dump_weights": ("--save_dir", "no/such/run", "--outfile", "w.hdf5"),
        "run_test": (
            "--test_prefix",
            "t",
            "--vocab_file",
            VOCAB,
            "--save_dir",
            "no/such/run",
            "--batch_size",
            1,
        ),
    }[name]
    monkeypatch.setattr("bilm.cli.process.guard_standard_streams", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, flags)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "bin" / f"{name}.py"), run_name="__main__")
    assert caught.value.code == 1
    assert re.match("Error: no/such/(run|text)", capsys.readouterr().err)


# --- standard input -----------------------------------------------------------------------------------


def test_every_command_that_reads_text_takes_standard_input(trained, tmp_path, smallest_file):
    """Compressed as well; training reads it more than once."""
    data = gzip.compress(TRAIN.read_bytes())

    def piped(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=data)
        assert result.exit_code == 0, result.output
        return result.output

    same = ("--max-steps", 2, "--seed", 7)
    output = piped(*train_command(tmp_path / "run", smallest_file(), *same, text="-"))
    assert output.startswith("corpus: 1 file, 240 sentences")
    assert_same_arrays(checkpoint_arrays(newest(tmp_path / "run")), checkpoint_arrays(newest(trained.path)))
    piped("vocab", "build", "--train-prefix", "-", "--outfile", tmp_path / "vocab.txt")
    assert f"{N_TOKENS:,} tokens" in piped("test", "--test-prefix", "-", "--save-dir", trained.path)
    assert "nats per word" in piped("vocab", "check", VOCAB, "--train-prefix", "-")
