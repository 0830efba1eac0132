"""Flags that commands share: options of several files, and names of files."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from bilm.cli import flags
from tests.helpers import HELDOUT, TRAIN, VOCAB, refuse, run


@click.command(
    cls=flags.TextCommand, context_settings={"token_normalize_func": lambda s: s.replace("_", "-")}
)
@click.argument("vocabulary")
@flags.text_files("train")
@flags.text_files("heldout", required=False)
@click.option("--seed")
@click.option("--jit", is_flag=True)
def command(vocabulary, train_prefix, heldout_prefix, **_):
    click.echo(f"{vocabulary} | {' '.join(train_prefix)} | {' '.join(heldout_prefix)}")


def call(words):
    result = CliRunner().invoke(command, words.split())
    return result.exit_code, result.output.strip()


@pytest.mark.parametrize(
    ("words", "files"),
    [
        pytest.param("v --train-prefix a b --heldout-prefix c d", "v | a b | c d", id="several"),
        pytest.param("--seed 1 v --train_prefix a --train_prefix b c", "v | a b c |", id="repeated"),
        pytest.param("v --train-prefix=a b --heldout_prefix=c=d", "v | a b | c=d", id="equals"),
        pytest.param("v --train-prefix - b", "v | - b |", id="standard-input"),
        pytest.param("--train-prefix a b -- v", "v | a b |", id="end-of-options"),
        pytest.param("--train-prefix a --jit v", "v | a |", id="after-a-switch"),
    ],
)
def test_each_option_owns_the_words_that_follow_it(words, files):
    assert call(words) == (0, files)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param("v --train-prefix a --seed 1 b", "unexpected extra argument (b)", id="after-another"),
        pytest.param("v --train-prefix --seed 1", "'--train-prefix' requires an argument", id="no-file"),
        pytest.param("--train-prefix a v", "Missing argument 'VOCABULARY'", id="no-argument"),
        pytest.param("v --train-prefix=", "is empty", id="empty"),
    ],
)
def test_a_word_that_belongs_to_no_option_is_named(words, message):
    status, output = call(words)
    assert status == 2 and message in output
    assert output.startswith("Usage: command VOCABULARY [OPTIONS]")


def test_a_shell_completes_every_file_of_an_option():
    context = command.make_context("command", "v --train-prefix a b".split(), resilient_parsing=True)
    assert [item.type for item in command.shell_complete(context, "c")] == ["file"]
    assert "--seed" in [item.value for item in command.shell_complete(context, "--")]


def test_further_heldout_text_is_not_training_text(tmp_path, smallest_file):
    train = ("train", "--vocab-file", VOCAB, "--save-dir", tmp_path / "run", "--options", smallest_file())
    texts = ("--train-prefix", TRAIN, "--heldout-prefix", HELDOUT, TRAIN)
    output = run(*train, *texts, "--max-steps", 1, "--dry-run")
    assert "corpus: 1 file, " in output and "heldout: 2 files, " in output
    assert f"({HELDOUT})" in refuse(*train, *texts, "--seed", 1, HELDOUT, status=2)
    tested = ("test", "--test-prefix", TRAIN, "--save-dir", "run", "--checkpoint", "latest", HELDOUT)
    assert f"({HELDOUT})" in refuse(*tested, status=2)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", ""), id="run"),
        pytest.param(("test", "--test-prefix", "", "--save-dir", "run"), id="text"),
        pytest.param(("embed", "", "out.hdf5", "--save-dir", "run"), id="sentences"),
        pytest.param(("info", ""), id="info"),
    ],
)
def test_an_empty_name_is_refused(arguments):
    message = refuse(*arguments, status=2)
    assert message.startswith("Invalid value for ") and message.endswith("is a variable unset?")
