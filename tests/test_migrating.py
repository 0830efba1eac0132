"""The tables of the page for those who come from bilm-tf and AllenNLP; `test_pages` runs its code."""

import re
import runpy
import sys

import pytest
import tensorflow as tf

import bilm
import bilm.data
from bilm import BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids
from bilm.cli import main
from tests import pages
from tests.helpers import CHAR, FILES, VOCAB

PAGE = pages.text("docs/migrating.md")


def in_graph(function):
    with tf.Graph().as_default():
        return function()


@pytest.fixture(scope="module")
def names():
    names = {"in_graph": in_graph, "tf": tf.compat.v1, "files": [*map(str, FILES)]}
    names["bilm"] = BidirectionalLanguageModel(*FILES)
    known = (BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids)
    return names | {one.__name__: one for one in known}


def refusals():
    lines = (pages.ROOT / "tests" / "refusals.txt").read_text().splitlines()
    return [(call, message.strip()) for call, message in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize(("call", "message"), refusals())
def test_refusals(call, message, names, monkeypatch):
    monkeypatch.chdir(CHAR)
    with pytest.raises((bilm.errors.BilmError, TypeError)) as caught:
        eval(call, dict(names))
    assert message in str(caught.value) and "\n" not in str(caught.value)


SCRIPTS = {  # with files that do not exist
    "train_elmo": "--train_prefix t --vocab_file no/such/text --save_dir no/such/run",
    # Its defaults: as in the run.
    "restart": f"--train_prefix t --vocab_file {VOCAB} --save_dir no/such/run --n_gpus 3 --batch_size 0 "
    "--n_epochs=0 --n_train_tokens 0",
    "dump_weights": "--save_dir no/such/run --outfile w.hdf5",
    "run_test": f"--test_prefix no/such/text --vocab_file {VOCAB} --save_dir no/such/run --batch_size 1",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_take_flags_of_bilm_tf(script, monkeypatch, capsys):
    """Those of the page are known, and those here accepted: it is the files that are objected to."""
    path = pages.ROOT / "bin" / f"{script}.py"
    row = re.search(rf"^\| `bin/{script}.py ([^`]*)`", PAGE, re.MULTILINE)
    verb = re.search(r'"(train|restart|test|dump-weights)"', path.read_text())
    known = {flag for parameter in main.get_command(None, verb[1]).params for flag in parameter.opts}
    assert {flag.replace("_", "-") for flag in row[1].split()} <= known
    monkeypatch.setattr("bilm.cli.process.open_standard_streams", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [str(path), *SCRIPTS[script].split()])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(path), run_name="__main__")
    assert caught.value.code == 1
    assert re.match("Error: .*no/such/(run|text)", capsys.readouterr().err)


def test_unchanged_names_exist():
    part = PAGE.partition("### Names")[2].partition("###")[0]
    unchanged = [row[0] for row in pages.rows(part) if row[1].startswith("unchanged")]
    assert len(unchanged) == 4
    for name in re.findall(r"`(\w+)[`(]", " ".join(unchanged)):
        assert hasattr(bilm, name) or hasattr(bilm.data, name), name
