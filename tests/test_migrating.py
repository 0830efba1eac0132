"""The page for those who come from bilm-tf and AllenNLP: its commands, code and calls."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import bilm
from bilm import BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids, weight_layers
from bilm.cli import main
from tests.helpers import GOLDEN, invoke, small_options, write_json

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
FILES = ("options.json", "weights.hdf5")
VERBS = {"train_elmo": "train", "run_test": "test", "dump_weights": "dump-weights", "restart": "restart"}
SMALL = {"train": ["--options", "small.json", "--max-steps", "1"]}  # of the original size else


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page takes for granted."""
    folder = tmp_path_factory.mktemp("migrating")
    for name in (*FILES, "vocab.txt"):
        shutil.copyfile(GOLDEN / "char" / name, folder / name)
    for part, name in (("train", "train.txt"), ("heldout", "heldout.txt")):
        (folder / part).mkdir()
        shutil.copyfile(GOLDEN / "char" / name, folder / part / "text.txt")
    text = "The owl sold her violin .\nSo it did .\n"
    for name in ("dataset_file.txt", "sentences.txt"):
        (folder / name).write_text(text, encoding="utf-8")
    write_json(folder / "small.json", small_options())
    return folder


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def run_command(line: str) -> None:
    program, *words = shlex.split(line)
    if program == "python":
        script = ROOT / words.pop(0)
        verb = VERBS[script.stem]
        assert f'"{verb}"' in script.read_text(encoding="utf-8")
        words = [verb, *words, *SMALL.get(verb, [])]
        if verb == "dump-weights":
            words[-1] = f"dumped-{words[-1]}"  # the page has it beside the options of the next blocks
    result = invoke(*words)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_commands(folder: Path):
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert len(lines) == 5
    for line in lines:
        run_command(line)
    assert (folder / "dumped-weights.hdf5").is_file() and (folder / "indexed.hdf5").is_file()


PRINTED = [
    "(2, 3, 24) (1, 3, 24)",
    "(2, 3, 2, 24) (2, 2)",
    "(3, 4, 24)",
    "(2, 3, 24) (2, 3) 24",
    "(None, None, 3)",
    "(2, 3, 6, 24) (2, 6) 2",
]


@pytest.mark.parametrize(("code", "printed"), zip(blocks("python"), PRINTED, strict=True))
def test_code(code: str, printed: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(code, "migrating.md", "exec"), {})
    assert printed in capsys.readouterr().out


def in_graph(function):
    with tf.Graph().as_default():
        return function()


@pytest.fixture(scope="module")
def names(folder: Path) -> dict[str, object]:
    files = [str(folder / name) for name in FILES]
    model = BidirectionalLanguageModel(*files)
    output = model(bilm.Batcher(None, 50).batch_sentences([["Time", "flies"]]))
    names = {"in_graph": in_graph, "tf": tf.compat.v1, "bilm": model, "output": output, "files": files}
    known = (BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids, weight_layers)
    return names | {one.__name__: one for one in known}


def refusals() -> list[tuple[str, str]]:
    tables = PAGE.split("| call | message |\n|---|---|\n")[1:]
    rows = [row for table in tables for row in table.partition("\n\n")[0].strip().splitlines()]
    return [re.fullmatch(r"\| `(.*?)` \| (.*) \|", row).groups() for row in rows]


@pytest.mark.parametrize(("call", "message"), refusals())
def test_refusals(call: str, message: str, names: dict[str, object]):
    with pytest.raises((bilm.errors.BilmError, TypeError)) as caught:
        eval(call, dict(names))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_flags_and_arguments_that_are_named_exist():
    commands = [*main.commands.values()]
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    theirs = re.search(r"^\| (`--vocab-path`.*?) \| leave them out", PAGE, re.MULTILINE)[1]
    for flag in set(re.findall(r"(?<!\w)--[a-z][a-z_-]+", PAGE)) - set(re.findall(r"--[a-z-]+", theirs)):
        assert flag.replace("_", "-") in known, flag
    for flag in re.findall(r"--[a-z-]+", theirs):
        assert flag not in known, flag
