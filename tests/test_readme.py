"""The commands and the code of the README do what it says."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bilm.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_train_your_own(tmp_path, monkeypatch):
    golden = ROOT / "tests" / "golden" / "char"
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "part.txt").write_text((golden / "train.txt").read_text())
    (tmp_path / "heldout.txt").write_text((golden / "heldout.txt").read_text())
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("bilm")]
    assert [shlex.split(command)[1] for command in commands] == [
        *("vocab", "vocab", "train", "test", "restart", "dump-weights"),
        *("train", "info", "plot", "vocab", "restart", "embed"),
    ]
    for command in commands:
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert (tmp_path / "weights.hdf5").is_file() and (tmp_path / "options.json").is_file()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)$", "\n".join(blocks("console")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "printed"),
    list(zip(blocks("python"), ["(3, 2, 24)", "(Elmo)", "encoder"], strict=True)),
)
def test_python(code, printed, capsys, tmp_path, monkeypatch):
    for name in ("options.json", "weights.hdf5"):
        shutil.copyfile(ROOT / "tests" / "golden" / "char" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert printed in capsys.readouterr().out


def test_flags_that_are_mentioned_exist():
    known = {
        flag
        for command in [*main.commands.values(), *main.commands["vocab"].commands.values()]
        for parameter in command.params
        for flag in [*parameter.opts, *parameter.secondary_opts]
    } | {"--help"}
    text = re.sub(r"^```bash\n.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)  # of other programs too
    for flag in set(re.findall(r"(?<!\w)--[a-z][a-z_-]+", text)):
        assert flag.replace("_", "-") in known, flag


def test_parameters_of_the_presets():
    from bilm.options import PRESETS
    from bilm.weights.names import weight_names

    for name, options in PRESETS.items():
        millions = re.search(rf"^\| `{name}`.*?\| ([\d.]+) M \|", README, re.MULTILINE)
        n_parameters = sum(_product(weight.shape) for weight in weight_names(options))
        assert float(millions[1]) == round(n_parameters / 1e6, 1), (name, n_parameters)


def _product(shape):
    total = 1
    for size in shape:
        total *= size
    return total
