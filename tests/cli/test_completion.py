"""Quick start of the command line, and what a shell completes."""

import pytest

from bilm.cli import main
from tests.helpers import python, refuse, run

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


def test_the_help_knows_every_command():
    output = run("--help")
    assert all(f"  {name} " in output for name in main.table) and len(main.table) > 9
    assert "No such command 'no'" in refuse("no", status=2)
    assert "Usage: bilm dump-weights" in run("dump_weights", "--help")  # as bilm-tf spells


def test_scripts_of_shells():
    for shell, line in (
        ("bash", "complete -o nosort -F _bilm_completion bilm"),
        ("zsh", "#compdef bilm"),
        ("fish", "complete --no-files --command bilm"),
    ):
        assert line in run("completion", shell)
