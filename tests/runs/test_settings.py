"""The arguments of a training call, checked where its settings are made."""

from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm.errors import DataError, OptionsError
from bilm.options import PRESETS
from bilm.runs.settings import ARGUMENTS, TrainingSettings, read_arguments, steps_or_epoch, steps_or_minutes
from tests.helpers import VOCAB, write_json
from tests.records import plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": "x"}, '`seed`: expected an integer, got "x"'),
        ({"seed": 1 << 31}, "`seed`: must be at most 2147483647, got 2147483648"),
        ({"max_time": float("nan")}, "`max_time`: expected a number, got NaN"),
        ({"keep": 0}, "`keep`: must be at least 1, got 0"),
        ({"shuffle": "no"}, '`shuffle`: expected true or false, got "no"'),
        ({"save_every": "3h"}, "`save_every`: '3h' is neither a number of steps, such as 1250, nor of"),
        ({"eval_every": 0, "heldout_prefix": "h"}, "`eval_every`: '0' is neither a number of steps, such as"),
        ({"heldout_prefix": ["h", b"i"]}, "`heldout_prefix` is ['h', b'i']; expected files"),
        ({"changes": "dropout"}, '`changes`: expected an object, got "dropout"'),
        ({"changes": {"recipe": "auto"}}, "recipe: only records which one was used; give the argument `re"),
        (
            {"n_epochs": 1, "changes": {"n_epochs": 3}},
            "`n_epochs`: given as 1 and, in the changes (--set), 3; give one of them",
        ),
        ({"eval_every": 2}, "`eval_every` needs `heldout_prefix`"),
        ({"patience": 2}, "`patience` needs `heldout_prefix`"),
        ({"sead": 2}, "`sead`: no such argument; did you mean `seed`?"),
        ({"lstm_dim": 2}, "`lstm_dim`: no such argument; other keys of options.json go in changes="),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_argument_is_named(arguments, message):
    with pytest.raises(OptionsError) as caught:
        TrainingSettings.from_arguments(arguments)
    assert str(caught.value).startswith(message)


def test_settings_convert_values():
    assert TrainingSettings.from_arguments(dict.fromkeys(ARGUMENTS)) == TrainingSettings()
    settings = TrainingSettings.from_arguments(
        {"dropout": np.float32(0.5), "optimizer": "adam", "changes": {"dropout": 0.5, "lstm.dim": 4}}
        | {"seed": np.int64(3), "heldout_prefix": Path("h"), "save_every": "1.5m", "max_time": "2s"}
    )
    assert settings.values == {"dropout": 0.5, "optimizer": "adam", "lstm.dim": 4}
    assert (settings.seed, settings.max_time, settings.heldout_prefix) == (3, 2.0, ("h",))
    assert type(settings.seed) is int and type(settings.values["dropout"]) is float
    assert settings.save_every == "1.5m"


def test_read_arguments_reads_file(tmp_path):
    given = {"train_prefix": "a", "heldout_prefix": ["b", "c"], "vocab_file": "v", "recipe": None}
    given |= {"dropout": 0, "changes": {"lstm.dim": 64}, "max_time": "90m"}
    given |= {"options": PRESETS["tiny"].to_json() | {"n_tokens_vocab": 80}}
    values = read_arguments(write_json(tmp_path / "run.json", given))
    texts = values["train_prefix"], values["heldout_prefix"], values["vocab_file"]
    assert texts == (("a",), ("b", "c"), "v")
    assert "recipe" not in values and values["options"] == PRESETS["tiny"].to_json()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "the file: expected an object, got []"),
        ({"vocab_fil": 1, "vocab_file": 2}, "'vocab_fil': unrecognised option"),
        ({"options": {"lstm": {}}}, "invalid options:\n  lstm.dim: missing"),
        ({"options": PRESETS["tiny"].to_json() | {"hue": 1}}, "invalid options:\n  'hue': unrecognised"),
        ({"train_prefix": 3}, "`train_prefix` is 3; expected files"),
        ({"overwrite": True}, "'overwrite': unrecognised option"),
        ({"changes": ["lstm.dim=512"]}, "changes: ['lstm.dim=512'] has the wrong type"),
        ({"seed": [1]}, "seed: [1] has the wrong type"),
    ],
    ids=lambda value: next(iter(value), "list") if isinstance(value, dict) else "",
)
def test_read_arguments_names_file_and_problem(values, message, tmp_path):
    file = write_json(tmp_path / "run.json", values)
    with pytest.raises(OptionsError) as caught:
        read_arguments(file)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_record_repeats_the_call(monkeypatch):
    requests = []

    def begin(request, *_):
        requests.append(request)
        raise DataError("enough")

    monkeypatch.setattr("bilm.runs.prepare.run", begin)
    for n_train_tokens in (None, 9):
        with pytest.raises(DataError, match="enough"):
            bilm.train("a", VOCAB, "r", max_time="1m", resume=True, keep=3, n_train_tokens=n_train_tokens)
    options = PRESETS["tiny"].with_values({"n_train_tokens": 9})
    of_call = plan(seed=5, options=options, threads=2)
    counted, given = (request.repeated(of_call) for request in requests)
    assert (counted["seed"], counted["threads"], counted["keep"]) == (5, 2, 3)
    assert counted.keys().isdisjoint(("max_time", "resume", "dry_run", "eval_every", "n_train_tokens"))
    assert given == counted | {"n_train_tokens": 9}


def test_intervals_are_steps_minutes_or_epochs():
    assert steps_or_minutes("1250") == steps_or_minutes(1250) == 1250
    assert steps_or_minutes("1.50m") == "1.50m" and steps_or_minutes("0.5m") == "0.5m"
    for text in ("", "0", "0m", "0.0m", "1.5", "-3", "3h", "m", "9" * 5000, "9" * 5000 + "m"):
        with pytest.raises(OptionsError, match="neither a number of steps"):
            steps_or_minutes(text)
    assert steps_or_epoch("12") == steps_or_epoch(12) == 12 and steps_or_epoch("epoch") == "epoch"
    for text in ("0", "epochs", "²", "9" * 5000):
        with pytest.raises(OptionsError, match="neither a number of steps, such as 1250, nor 'epoch'"):
            steps_or_epoch(text)
