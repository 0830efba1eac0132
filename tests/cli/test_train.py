"""`bilm train`, `test` and `restart` from end to end, on the golden text."""

import dataclasses
import gzip
import json
import math
import os
import re
import shutil
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

import bilm
from bilm.cli import main
from bilm.cli.commands import training
from bilm.errors import DataError
from bilm.runs import loop
from bilm.runs.settings import read_arguments
from tests.helpers import (
    HELDOUT,
    TRAIN,
    VOCAB,
    assert_same_arrays,
    combined_perplexity,
    newest_arrays,
    refuse,
    run,
    snapshot,
    train_command,
    write_json,
)

N_TOKENS = 2890  # words and sentence ends of the training text
N_HELDOUT = 747


# --- train ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_flags_override_options(tmp_path, smallest_file):
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
    assert "corpus: 3 files, 240 sentences" in output and "training: 9 steps, 3 per epoch" in output
    assert re.search(r"step 9  0:00:00 left  perplexity [\d.]+  epoch 3\.00", output)
    written = json.loads((tmp_path / "run" / "options.json").read_text())
    expected = {"n_epochs": 3, "batch_size": 3, "n_train_tokens": 27, "learning_rate": 0.1, "dropout": 0.0}
    assert {key: written[key] for key in expected} == expected
    assert written["lstm"]["cell_clip"] == 2.5 and written["sample_softmax"] is False
    # The newest two are kept: step 8 and the last.
    indices = {path.name for path in (tmp_path / "run").glob("*.index")}
    assert indices == {"model.ckpt-8.index", "model.ckpt-9.index"}


@pytest.mark.slow
def test_folder_of_text_may_hold_the_run_but_not_the_vocabulary(tmp_path, smallest_file):
    folder = tmp_path / "folder"
    folder.mkdir()
    for file in (TRAIN, VOCAB):
        shutil.copy(file, folder)
    words = ("train", "--train-prefix", folder, "--save-dir", folder / "run", "--options", smallest_file())
    message = refuse(*words, "--vocab-file", folder / VOCAB.name)
    assert message == f"{folder / VOCAB.name}: is part of {folder}, which is read; give a path outside it"
    message = refuse(*words[:2], folder / "*", *words[3:], "--vocab-file", folder / VOCAB.name)
    assert message == f"{folder / VOCAB.name}: is one of the files that are read; give another path"
    (folder / VOCAB.name).unlink()
    for command in (words, (*words, "--resume")):
        output = run(*command, "--vocab-file", VOCAB, "--max-steps", 1)
        assert "corpus: 1 file, 240 sentences" in output
    assert "nothing left to do" in output


@pytest.mark.slow
def test_run_toml_repeats_run(tmp_path, monkeypatch):
    """Names of files are relative in the call, the seed is drawn, and recipe and options are chosen."""
    monkeypatch.chdir(TRAIN.parent)
    small = ("lstm.dim=8", "lstm.projection_dim=8", "unroll_steps=4", "n_negative_samples_batch=16")
    small += ("lstm.n_layers=1", "bidirectional=false")
    changes = [word for change in ("char_cnn=null", *small) for word in ("--set", change)]
    texts = ("--train-prefix", TRAIN.name, "--heldout-prefix", HELDOUT.name, "--vocab-file", VOCAB.name)
    first, *others = [tmp_path / name for name in ("first", "second", "third")]
    settings = ("--n-train-tokens", 256, "--n-epochs", 1, "--batch-size", 8, "--eval-every", 8, "--keep", 1)
    run("train", "--preset", "tiny", *texts, *changes, *settings, "--save-dir", first)
    monkeypatch.chdir(tmp_path)
    arguments = read_arguments(first / "run.toml")
    assert arguments["options"]["recipe"] == "one-pass" and arguments["keep"] == 1
    run("train", "--config", "first/run.toml", "--save-dir", others[0])
    bilm.train(**arguments, save_dir=others[1], reporter=bilm.Reporter())
    for other in others:
        assert (other / "run.toml").read_bytes() == (first / "run.toml").read_bytes()
        assert_same_arrays(newest_arrays(other), newest_arrays(first))


@pytest.mark.slow
def test_flags_override_config(tmp_path, smallest_file):
    options = json.loads(smallest_file(n_epochs=1, n_tokens_vocab=80).read_text())
    arguments = {"train_prefix": str(TRAIN), "vocab_file": str(VOCAB), "options": options, "batch_size": 3}
    arguments |= {"changes": {"dropout": 0.5, "lstm": {"cell_clip": 2, "proj_clip": 2}}}
    arguments |= {"seed": 1, "n_train_tokens": 90}
    file = write_json(tmp_path / "run.json", arguments)
    changes = ("--dropout", 0.25, "--set", "batch_size=5", "--set", "lstm.proj_clip=4", "--seed", 2)
    run("train", "--config", file, "--save-dir", tmp_path / "run", *changes, "--max-steps", 1)
    written = json.loads((tmp_path / "run" / "options.json").read_text())
    assert (written["batch_size"], written["dropout"]) == (5, 0.25)
    assert (written["lstm"]["cell_clip"], written["lstm"]["proj_clip"]) == (2.0, 4.0)
    assert '"seed": 2' in (tmp_path / "run" / "calls.jsonl").read_text()
    write_json(file, arguments | {"recipe": "huge"})
    message = refuse("train", "--config", file, "--save-dir", "none", status=2)
    assert f"Invalid value for recipe in {file}: 'huge' is not one of" in message


@pytest.mark.parametrize(
    ("file", "flags", "kept"),
    [
        ({"corpus": "c", "preset": "tiny"}, "--heldout-prefix h --options o", ["corpus"]),
        ({"corpus": "c", "options": "o"}, "--train-prefix t --preset tiny", []),
        ({"corpus": "c"}, "--vocab-file v", []),
        ({"corpus": "c", "changes": {"n_epochs": 3}}, "--n-epochs 1", ["corpus"]),
        ({"train_prefix": "t", "heldout_prefix": "h", "vocab_file": "v"}, "--corpus c", []),
    ],
)
def test_flags_replace_rivals_in_config(file, flags, kept, tmp_path, monkeypatch):
    def end(**arguments):
        raise DataError(str([name for name in file if arguments[name]]))

    monkeypatch.setattr("bilm.runs.train.train", end)
    config = write_json(tmp_path / "run.json", file)
    assert refuse("train", "--config", config, "--save-dir", tmp_path / "run", *flags.split()) == str(kept)


def test_each_number_of_threads_is_timed(monkeypatch):
    monkeypatch.setattr("bilm.io.background.n_cores", lambda: 8)
    monkeypatch.setattr(training, "ProcessPoolExecutor", lambda n, _: ThreadPoolExecutor(n))
    monkeypatch.setattr(training, "_tokens_per_second", lambda kind, own, xla: 100.0 * own["threads"])
    own = types.SimpleNamespace(threads=4, tokens_per_second=150.0)
    said = training._fastest_threads("train", {"train_prefix": ("a",), "heldout_prefix": None}, own)
    times = "1: 100 tokens/s, 4: 150 tokens/s, 8: 800 tokens/s"
    assert said == f"speed by number of threads: {times}; fastest: --threads 8"


@pytest.mark.slow
def test_dry_run_times_threads(tmp_path, smallest_file, monkeypatch):
    """In processes of their own, with the options of the call instead of those of its configuration.

    But not on a GPU, which the first process keeps.
    """
    arguments = {"train_prefix": str(TRAIN), "vocab_file": str(VOCAB), "seed": 1}
    arguments["options"] = json.loads(smallest_file(n_tokens_vocab=80).read_text())
    file, options = write_json(tmp_path / "run.json", arguments), smallest_file(n_tokens_vocab=81)
    before = {*os.listdir("/")}
    command = ("train", "--config", file, "--save-dir", "/", "--options", options, "--dry-run")
    dry = run(*command)
    assert "\nspeed by number of threads: 1: " in dry
    rates = {n: int(rate.replace(",", "")) for n, rate in re.findall(r"(\d+): ([\d,]+) tokens/s", dry)}
    assert rates[dry.partition("; fastest: --threads ")[2].strip()] == max(rates.values())
    assert "seed:" not in dry and {*os.listdir("/")} == before
    on_cpu = loop.Training.estimate
    monkeypatch.setattr(loop.Training, "estimate", lambda run: dataclasses.replace(on_cpu(run), gpu_bytes=1))
    assert "speed by number" not in run(*command)


def test_overwrite_refuses_own_config(run_copy, smallest_file):
    before, file = snapshot(run_copy), run_copy / "run.toml"
    message = refuse("train", "--config", file, "--save-dir", run_copy, "--overwrite")
    assert message == f"{file}: it is an input and would be lost; give another name"
    text = train_command(run_copy, smallest_file(), "--overwrite", text=run_copy / "vocab.txt")
    assert f"{run_copy}/vocab.txt: is an input of this command" in refuse(*text)
    assert snapshot(run_copy) == before
    assert "nothing left to do" in run("train", "--config", file, "--save-dir", run_copy, "--resume")


# --- test -------------------------------------------------------------------------------------------


def test_test_json_equals_printed_line(trained):
    before = snapshot(trained)
    output = run("test", "--save-dir", trained, "--test-prefix", HELDOUT, "--json")
    result = json.loads(output.splitlines()[-1])
    perplexities = {"perplexity", "forward_perplexity", "backward_perplexity"}
    known = f"perplexity of the known words: {result['known_perplexity']:.4f}"
    assert f"{known} (unknown words, 5.97% of the text" in output
    assert set(result) == perplexities | {"known_perplexity", "bits_per_character", "tokens", "oov_rate"}
    assert combined_perplexity(output) == pytest.approx(result["perplexity"], abs=1e-4)
    assert f"({N_HELDOUT} tokens)" in output and f"{result['oov_rate']:.2%} unknown words" in output
    words, known = HELDOUT.read_text().split(), set(VOCAB.read_text().split())
    n_characters = sum(len(word) + 1 for word in words)
    bits = math.log2(result["perplexity"]) * N_HELDOUT / n_characters
    assert result["bits_per_character"] == pytest.approx(bits)
    assert result["oov_rate"] == pytest.approx(sum(word not in known for word in words) / len(words))
    assert snapshot(trained) == before


# --- standard input -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_read_standard_input(trained, tmp_path, smallest_file):
    """Compressed as well; training reads it more than once."""
    data = gzip.compress(TRAIN.read_bytes())

    def piped(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=data)
        assert result.exit_code == 0, result.output
        return result.output

    same = ("--max-steps", 2, "--seed", 7)
    output = piped(*train_command(tmp_path / "run", smallest_file(), *same, text="-"))
    assert output.startswith("corpus: 1 file, 240 sentences")
    assert_same_arrays(newest_arrays(tmp_path / "run"), newest_arrays(trained))
    piped("vocab", "build", "--train-prefix", "-", "--outfile", tmp_path / "vocab.txt")
    assert f"{N_TOKENS:,} tokens" in piped("test", "--test-prefix", "-", "--save-dir", trained)
    assert "corpus: 1 file" in piped("vocab", "check", VOCAB, "--train-prefix", "-")
