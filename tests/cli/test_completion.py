"""Quick start of the command line, and what a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete

from bilm.cli import main
from tests.helpers import refuse, run

HEAVY = ("tensorflow", "keras", "h5py", "numpy", "matplotlib")


def completed(*words):
    """Values and kinds of what stands for the last word, which is not complete."""
    return [(item.value, item.type) for item in BashComplete(main, {}, "bilm", "_").get_completions(*words)]


def python(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def imported(done):
    """Top-level packages that a Python with ``-X importtime`` says it has imported."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["completion", "bash"]])
def test_nothing_heavy_is_imported(arguments):
    done = python("-X", "importtime", "-m", "bilm", *arguments)
    assert "click" in imported(done) and not imported(done).intersection(HEAVY)


def test_completing_the_name_of_a_command_imports_nothing_heavy():
    done = python(
        *("-X", "importtime", "-c", "from bilm.cli import main; main(prog_name='bilm')"),
        _BILM_COMPLETE="bash_complete",
        COMP_WORDS="bilm e",
        COMP_CWORD="1",
    )
    assert done.stdout.splitlines() == ["plain,embed", "plain,export"]
    assert "click" in imported(done) and not imported(done).intersection(HEAVY)


def test_completing_the_flags_of_any_command_imports_nothing_heavy():
    code = "from bilm.cli import main; print(len([main.commands[name] for name in main.commands]))"
    done = python("-X", "importtime", "-c", code)
    assert int(done.stdout) == len(main.commands) and not imported(done).intersection(HEAVY)


def test_the_help_knows_every_command():
    output = run("--help")
    for name, command in main.commands.items():
        assert isinstance(command, click.Command) and command.name == name
        assert f"  {name} " in output
    assert len(main.commands) == len(list(main.commands)) > 9
    assert "No such command 'no'" in refuse("no", status=2)
    assert "Usage: bilm dump-weights" in run("dump_weights", "--help")  # as bilm-tf spells


def test_commands_flags_and_values_are_completed():
    assert completed([], "dump") == [("dump-weights", "plain")]
    assert ("--version", "plain") in completed([], "--")
    assert ("--vocab-file", "plain") in completed(["train"], "--vo")
    assert ("small", "plain") in completed(["train", "--preset"], "s")
    assert completed(["vocab"], "") == [("build", "plain"), ("check", "plain")]
    assert completed(["completion"], "") == [(shell, "plain") for shell in ("bash", "zsh", "fish")]


FILE_ENDINGS = ("file", "dir", "directory", "prefix", "corpus", "path", "runs")


def file_parameters(command):
    return [
        parameter
        for parameter in command.params
        if parameter.name.endswith(FILE_ENDINGS) or parameter.name in ("sentences", "vocabulary")
    ]


@pytest.mark.parametrize("name", [name for name in main.commands if name not in ("vocab", "completion")])
def test_files_and_directories_are_completed(name):
    parameters = file_parameters(main.commands[name])
    assert parameters
    context = click.Context(main.commands[name])
    for parameter in parameters:
        (item,) = parameter.shell_complete(context, "corp")
        assert (item.value, item.type) == ("corp", "file"), parameter


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _bilm_completion bilm"),
        ("zsh", "#compdef bilm"),
        ("fish", "complete --no-files --command bilm"),
    ],
)
def test_scripts(shell, line):
    script = run("completion", shell)
    assert line in script and f"_BILM_COMPLETE={shell}_complete" in script


def test_other_shells_are_refused():
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refuse("completion", "tcsh", status=2)


def test_the_script_completes_in_bash(tmp_path):
    """What the shell calls is the program on its path, so one is put there."""
    program = tmp_path / "bilm"
    program.write_text(f"#!{sys.executable}\nfrom bilm.cli import main\nmain(prog_name='bilm')\n")
    program.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(
        run("completion", "bash") + "COMP_WORDS=(bilm re) COMP_CWORD=1\n_bilm_completion bilm\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.getcwd(),
    }
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["restart"], done.stderr
