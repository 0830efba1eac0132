"""`bilm train`, `test` and `restart` from end to end, on the golden text."""

from __future__ import annotations

import gzip
import json
import re
import runpy
import sys

import pytest
from click.testing import CliRunner

from bilm.cli import main
from tests.helpers import (
    HELDOUT,
    ROOT,
    TRAIN,
    VOCAB,
    assert_same_arrays,
    checkpoint_arrays,
    combined_perplexity,
    newest,
    python,
    run,
    snapshot,
    train_command,
)

N_TOKENS = 2890  # words and sentence ends of the training text
N_HELDOUT = 747


# --- train ------------------------------------------------------------------------------------------


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
    assert "corpus: 3 files, 240 sentences" in output and "training: 9 steps, 3 per epoch" in output
    assert re.search(r"step 9  100\.0%  0:00:00 left  perplexity [\d.]+  epoch 3\.00", output)
    written = json.loads((tmp_path / "run" / "options.json").read_text())
    expected = {"n_epochs": 3, "batch_size": 3, "n_train_tokens": 27, "learning_rate": 0.1, "dropout": 0.0}
    assert {key: written[key] for key in expected} == expected
    assert written["lstm"]["cell_clip"] == 2.5 and written["sample_softmax"] is False
    # The newest two are kept: step 8 and the last.
    indices = {path.name for path in (tmp_path / "run").glob("*.index")}
    assert indices == {"model.ckpt-8.index", "model.ckpt-9.index"}


# --- test -------------------------------------------------------------------------------------------


def test_json_agrees_with_the_printed_line(trained_whole):
    before = snapshot(trained_whole.path)
    output = run("test", "--save-dir", trained_whole.path, "--test-prefix", HELDOUT, "--json")
    result = json.loads(output.splitlines()[-1])
    assert set(result) == {"perplexity", "forward_perplexity", "backward_perplexity", "tokens", "oov_rate"}
    assert combined_perplexity(output) == pytest.approx(result["perplexity"], abs=1e-4)
    assert f"({N_HELDOUT} tokens)" in output and f"OOV {result['oov_rate']:.2%}" in output
    words, known = HELDOUT.read_text().split(), set(VOCAB.read_text().split())
    assert result["oov_rate"] == pytest.approx(sum(word not in known for word in words) / len(words))
    assert snapshot(trained_whole.path) == before


# --- entry points -----------------------------------------------------------------------------------


def test_python_m_bilm():
    result = python("-m", "bilm", "--help")
    for verb in ("vocab", "train", "restart", "test", "dump-weights"):
        assert f"\n  {verb} " in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["train_elmo", "restart", "dump_weights", "run_test"])
def test_scripts_of_bilm_tf_take_its_flags(name, monkeypatch, capsys):
    """Their own flags, whose files do not exist: it is the files that are objected to."""
    flags = {
        "train_elmo": "--train_prefix t --vocab_file no/such/text --save_dir no/such/run",
        # Its defaults: as in the run.
        "restart": f"--train_prefix t --vocab_file {VOCAB} --save_dir no/such/run --n_gpus 3 "
        "--batch_size 0 --n_epochs=0 --n_train_tokens 0",
        "dump_weights": "--save_dir no/such/run --outfile w.hdf5",
        "run_test": f"--test_prefix t --vocab_file {VOCAB} --save_dir no/such/run --batch_size 1",
    }[name]
    monkeypatch.setattr("bilm.cli.process.guard_standard_streams", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *flags.split()])
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
