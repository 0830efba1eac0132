"""docs/options.md, whose tables are made of the code, and the table of presets say what the code does."""

import dataclasses
import json
import math
import re

from bilm.options import PRESETS, Options
from bilm.weights.names import weight_names
from tests import pages

ROWS = {row[0].strip("`"): row for row in pages.rows(pages.text("docs/options.md"))}


def flat(values, section=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{section}{key}.")
        else:
            yield section + key


def test_every_key_has_a_row():
    keys = [*flat(PRESETS["original"].to_json()), "char_cnn", "n_train_tokens"]
    assert sorted(ROWS) == sorted(keys)
    assert len(pages.rows(pages.text("docs/options.md"))) == len(ROWS)


def test_the_file_that_is_shown_is_the_original():
    (shown,) = pages.code("docs/options.md", "json")
    options = Options.from_json(json.loads(shown))
    assert dataclasses.replace(options, n_tokens_vocab=None) == PRESETS["original"]


def test_parameters_of_the_presets():
    table = pages.text("docs/training.md")
    for name, options in PRESETS.items():
        millions = re.search(rf"^\| `{name}`.*?\| ([\d.]+) M \|", table, re.MULTILINE)
        total = sum(math.prod(weight.shape) for weight in weight_names(options))
        assert millions and float(millions[1]) == round(total / 1e6, 1), (name, total)
