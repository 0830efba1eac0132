"""Commands of other packages, by entry point."""

import click

from bilm.cli import main
from tests.helpers import refuse, run


def test_commands_of_other_packages(tmp_path, monkeypatch):
    """Of an installed package, one of which cannot be imported; help and completion import neither."""
    about = tmp_path / "more_lines-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: more-lines\nVersion: 1.0\n")
    points = ("count-lines = more_lines:count", "broken = missing_lines:command", "train = more_lines:count")
    (about / "entry_points.txt").write_text("\n".join(["[bilm.commands]", *points]))
    (tmp_path / "more_lines.py").write_text(
        "import click\n"
        "from bilm.errors import DataError\n"
        "@click.command\n"
        "@click.argument('n', type=int)\n"
        "def count(n):\n"
        "    if n < 0:\n"
        "        raise DataError('text.txt: fewer than no lines')\n"
        "    click.echo(f'{n} lines')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [line.split() for line in run("--help").splitlines()[-2:]] == [
        ["count-lines", "from", "more_lines"],
        ["broken", "from", "missing_lines"],
    ]
    offered = main.shell_complete(click.Context(main, info_name="bilm"), "")
    assert {"train", "count-lines", "broken"} <= {item.value for item in offered}
    assert run("count_lines", 3) == "3 lines\n"
    assert refuse("count-lines", "--", -1) == "text.txt: fewer than no lines"
    assert "--preset" in run("train", "--help")  # bilm's own come first
