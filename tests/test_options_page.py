"""docs/options.md and the table of presets say what the code does, key by key."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bilm.options import PRESETS, CharCNNOptions, LSTMOptions, Optimizer, Options, hyper_parameters
from bilm.weights.names import weight_names
from tests import pages

PAGE = pages.text("docs/options.md")
ROWS = {row[0].strip("`"): row for row in pages.rows(PAGE)}
REQUIRED = {
    "lstm": {"dim": 2, "projection_dim": 1},
    "char_cnn": {"filters": [[1, 1]], "embedding": {"dim": 1}},
}


def flat(values: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{section}{key}.")
        else:
            yield section + key, value


DEFAULTS = {"char_cnn": None, "n_train_tokens": None, **dict(flat(Options.from_json(REQUIRED).to_json()))}
ORIGINAL = {"n_train_tokens": None, **dict(flat(PRESETS["original"].to_json()))}


def test_every_key_has_a_row():
    assert sorted(ROWS) == sorted(DEFAULTS)
    assert len(pages.rows(PAGE)) == len(ROWS)


@pytest.mark.parametrize("key", DEFAULTS)
def test_values(key: str):
    _, default, original, _ = ROWS[key]
    needed = key in dict(flat(REQUIRED))
    assert default == ("required" if needed else f"`{json.dumps(DEFAULTS[key])}`")
    if key not in ("char_cnn", "char_cnn.filters"):  # shown in full above
        assert original == f"`{json.dumps(ORIGINAL[key])}`"


def test_the_file_that_is_shown_is_the_original():
    (shown,) = pages.code("docs/options.md", "json")
    options = Options.from_json(json.loads(shown))
    assert dataclasses.replace(options, n_tokens_vocab=None) == PRESETS["original"]


def test_every_choice_is_named():
    closed = [(field, "") for field in dataclasses.fields(Options)]
    closed += [(field, "char_cnn.") for field in dataclasses.fields(CharCNNOptions)]
    closed += [(field, "lstm.") for field in dataclasses.fields(LSTMOptions)]
    found = [(f"{section}{field.name}", field.default) for field, section in closed]
    choices = {key: type(default) for key, default in found if isinstance(default, enum.Enum)}
    assert len(choices) == 5
    for key, choice in choices.items():
        for member in choice:
            assert f'`"{member.value}"`' in " ".join(ROWS[key]), (key, member)


def test_learning_rates():
    meaning = ROWS["learning_rate"][3]
    for optimizer in (Optimizer.ADAGRAD, Optimizer.SGD, Optimizer.LION):
        rate = f"{optimizer.default_learning_rate:.4f}".rstrip("0")
        assert re.search(rf"{re.escape(rate)}0? for {optimizer.value}", meaning, re.I), optimizer
    others = {one.default_learning_rate for one in (Optimizer.ADAM, Optimizer.ADAFACTOR, Optimizer.RMSPROP)}
    assert others == {0.001} and "0.001 for the others" in meaning


def test_keys_of_our_own():
    ours = {row[0].strip("`") for row in pages.rows(PAGE.partition("## Ours")[2])}
    listed = re.findall(r"^``.*``$", hyper_parameters.__doc__ or "", re.MULTILINE)
    assert ours == {name for line in listed for name in re.findall(r"\w+", line)}


def test_parameters_of_the_presets():
    table = pages.text("docs/training.md")
    for name, options in PRESETS.items():
        millions = re.search(rf"^\| `{name}`.*?\| ([\d.]+) M \|", table, re.MULTILINE)
        total = sum(_product(weight.shape) for weight in weight_names(options))
        assert millions and float(millions[1]) == round(total / 1e6, 1), (name, total)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
