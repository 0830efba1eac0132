"""The command line itself: flags, names of files, quick start, completion."""

import logging
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import bilm
from bilm.backend import settings
from bilm.cli import _Formatter, flags, main
from bilm.cli.flags import Parsed
from bilm.runs.settings import seconds
from tests.helpers import TRAIN, VOCAB, python, refuse, run


@click.command(
    cls=flags.TextCommand, context_settings={"token_normalize_func": lambda s: s.replace("_", "-")}
)
@click.argument("vocabulary")
@flags.text_files("--train-prefix")
@flags.text_files("--heldout-prefix", required=False)
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
        pytest.param("v --train-prefix=- b --heldout_prefix=c=d", "v | - b | c=d", id="equals"),
        pytest.param("--train-prefix a b -- v", "v | a b |", id="end-of-options"),
        pytest.param("--train-prefix a --jit v", "v | a |", id="after-a-switch"),
    ],
)
def test_option_takes_several_files(words, files):
    assert call(words) == (0, files)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param("v --train-prefix a --seed 1 b", "unexpected extra argument (b)", id="after-another"),
        pytest.param("v --train-prefix --seed 1", "'--train-prefix' requires an argument", id="no-file"),
        pytest.param("--train-prefix a v", "Missing argument 'VOCABULARY'", id="no-argument"),
    ],
)
def test_extra_word_is_refused(words, message):
    status, output = call(words)
    assert status == 2 and message in output
    assert output.startswith("Usage: command VOCABULARY [OPTIONS]")


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", ""),
        ("test", "--test-prefix", "", "--save-dir", "run"),
        ("test", "--test-prefix=", "a.txt", "--save-dir", "run"),
        ("embed", "", "out.hdf5", "--save-dir", "run"),
    ],
    ids=["run", "text", "first text", "sentences"],
)
def test_empty_name_is_refused(arguments):
    message = refuse(*arguments, status=2)
    assert message.startswith("Invalid value for ") and message.endswith("is a variable unset?")


def test_name_with_nul_is_refused(tmp_path):
    (tmp_path / "run.toml").write_text('train_prefix = "t"\nvocab_file = "v\\u0000"\n')
    message = refuse("train", "--config", tmp_path / "run.toml", "--save-dir", tmp_path / "run", status=2)
    assert message.endswith("has a NUL character")


# --- values -------------------------------------------------------------------------------------------


def test_spans_of_time():
    spans = {"45s": 45, "90m": 5400, "1.5h": 5400, "2d": 172800, "1:30:00": 5400, "0:05": 300}
    spans |= {"1-12:00:00": 129600, "100:00:01": 360001}
    assert {text: Parsed("TIME", seconds).convert(text, None, None) for text in spans} == spans
    for text in ("", "90", "0s", "1:60:00", "-5m", "5 m"):
        with pytest.raises(click.BadParameter, match="is not a time such as 90m"):
            Parsed("TIME", seconds).convert(text, None, None)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        pytest.param("--n-epochs", "9" * 5000, "is not a valid integer", id="many-digits"),
        pytest.param("--max-time", "9" * 5000 + "d", "is not a time such as 90m", id="time"),
        pytest.param("--set", "lstm.dim", "'lstm.dim' is not KEY=VALUE", id="no-value"),
        pytest.param("--se" + "e" * 5000, "1", "No such option", id="flag"),
        pytest.param("--optimizer", "\x1b[2J", r"'\x1b[2J' is not one of 'adagrad'", id="control-characters"),
    ],
)
def test_wrong_value_is_refused(flag, value, message):
    found = refuse("train", flag, value, status=2)
    assert message in found and len(found) < 1000


def test_version_names_libraries():
    first, libraries, place = run("--version").splitlines()
    assert first == f"bilm, version {bilm.__version__}" and place == str(Path(bilm.__file__).parent)
    assert re.fullmatch(
        r"Python 3\S+, tensorflow 2\S+, keras 3\S+, numpy \d\S+(, torch \S+)?(, jax \S+)?", libraries
    )


def test_usage_error_leaves_xla_on():
    refuse("test", "--no-xla", status=2)
    assert settings.xla_is_on


def test_no_xla_disables_it_while_the_command_runs():
    seen = []
    command = click.command()(flags.no_xla(lambda: seen.append(settings.xla_is_on)))
    for words in ([], ["--no-xla"]):
        assert CliRunner().invoke(command, words).exit_code == 0
    assert seen == [True, False] and settings.xla_is_on


# --- quick start ----------------------------------------------------------------------------------


HEAVY = ("tensorflow", "keras", "h5py", "numpy", "matplotlib")


EVERY_COMMAND = "from bilm.cli import main; print([main.get_command(None, name) for name in main.table])"
COMPLETION = {"_BILM_COMPLETE": "bash_complete", "COMP_WORDS": "bilm e", "COMP_CWORD": "1"}


@pytest.mark.parametrize(
    ("arguments", "environment", "printed"),
    [
        (("-m", "bilm", "--help"), {}, "Train, test and use"),
        (("-c", EVERY_COMMAND), {}, "train>"),
        (("-c", "from bilm.cli import main; main(prog_name='bilm')"), COMPLETION, "embed\nplain,export\n"),
    ],
    ids=["help", "flags", "names"],
)
def test_nothing_heavy_is_imported(arguments, environment, printed):
    done = python("-X", "importtime", *arguments, **environment)
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == 0 and printed in done.stdout
    assert "click" in names and not names.intersection(HEAVY)


def test_help_lists_every_command():
    output = run("--help")
    assert all(f"  {name} " in output for name in main.table) and len(main.table) > 9
    assert "No such command 'no'" in refuse("no", status=2)
    assert "Usage: bilm dump-weights" in run("dump_weights", "--help")  # as bilm-tf spells
    assert "()" not in run("train", "--help")  # the default of a flag without one


def test_completion_scripts():
    for shell, line in (
        ("bash", "complete -o nosort -F _bilm_completion bilm"),
        ("zsh", "#compdef bilm"),
        ("fish", "complete --no-files --command bilm"),
    ):
        assert line in run("completion", shell)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", "--resume"),
        ("vocab", "build", "--outfile", "--overwrite", "--train-prefix", TRAIN),
    ],
    ids=["directory", "subcommand"],
)
def test_flag_is_refused_as_file(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refuse(*words, status=2)
    assert re.search(r": --(resume|overwrite) is an option; is a variable unset\?", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "shown"), [("bilm.text.extract", "--raw"), ("tensorflow", "`raw`")])
def test_only_our_warnings_name_flags(name, shown):
    record = logging.LogRecord(name, logging.WARNING, "", 0, "leave out `raw`", None, None)
    assert _Formatter().format(record) == f"warning: leave out {shown}"
