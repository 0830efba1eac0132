"""The tables of the page for those who come from bilm-tf and AllenNLP; `test_pages` runs its code."""

import re

import pytest
import tensorflow as tf

import bilm
import bilm.data
from bilm import BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids, weight_layers
from bilm.cli import main
from tests import pages
from tests.helpers import CHAR, FILES

PAGE = pages.text("docs/migrating.md")


def in_graph(function):
    with tf.Graph().as_default():
        return function()


@pytest.fixture(scope="module")
def names():
    model = BidirectionalLanguageModel(*FILES)
    output = model(bilm.Batcher(None, 50).batch_sentences([["Time", "flies"]]))
    names = {
        "in_graph": in_graph,
        "tf": tf.compat.v1,
        "bilm": model,
        "output": output,
        "files": [*map(str, FILES)],
    }
    known = (BidirectionalLanguageModel, Elmo, ElmoEmbedder, batch_to_ids, weight_layers)
    return names | {one.__name__: one for one in known}


def refusals():
    tables = PAGE.split("| call | message |\n|---|---|\n")[1:]
    rows = [row for table in tables for row in table.partition("\n\n")[0].strip().splitlines()]
    return [re.fullmatch(r"\| `(.*?)` \| (.*) \|", row).groups() for row in rows]


@pytest.mark.parametrize(("call", "message"), refusals())
def test_refusals(call, message, names, monkeypatch):
    monkeypatch.chdir(CHAR)
    with pytest.raises((bilm.errors.BilmError, TypeError)) as caught:
        eval(call, dict(names))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("script", ["train_elmo", "restart", "run_test", "dump_weights"])
def test_flags_of_the_old_scripts(script):
    row = re.search(rf"^\| `bin/{script}.py ([^`]*)`", PAGE, re.MULTILINE)
    source = (pages.ROOT / "bin" / f"{script}.py").read_text()
    verb = re.search(r'"(train|restart|test|dump-weights)"', source)
    known = {flag for parameter in main.get_command(None, verb[1]).params for flag in parameter.opts}
    assert {flag.replace("_", "-") for flag in row[1].split()} <= known


def test_names_that_are_unchanged_exist():
    part = PAGE.partition("### Names")[2].partition("###")[0]
    unchanged = [row[0] for row in pages.rows(part) if row[1].startswith("unchanged")]
    assert len(unchanged) == 4
    for name in re.findall(r"`(\w+)[`(]", " ".join(unchanged)):
        assert hasattr(bilm, name) or hasattr(bilm.data, name), name
