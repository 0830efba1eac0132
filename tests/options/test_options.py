"""Hyper-parameters: the JSON form, presets, and every way to get them wrong."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.errors import OptionsError
from bilm.options import (
    PRESETS,
    Activation,
    CharCNNOptions,
    LSTMOptions,
    Options,
)
from bilm.options.file import load_inference_options, load_options
from tests.helpers import GOLDEN, VARIANTS, small_options, write_json


def problems_of(values):
    """The problems found, one a line."""
    with pytest.raises(OptionsError) as caught:
        Options.from_json(values)
    head, *lines = str(caught.value).splitlines()
    assert head == "invalid options:"
    return [line.strip() for line in lines]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_round_trip(name):
    preset = PRESETS[name]
    assert Options.from_json(json.loads(json.dumps(preset.to_json()))) == preset
    assert preset.bidirectional and preset.lstm.use_projection


def test_presets_have_the_published_shapes():
    shapes = {name: (p.lstm.dim, p.lstm.projection_dim, p.char_cnn.n_highway) for name, p in PRESETS.items()}
    assert shapes["original"] == (4096, 512, 2)
    assert shapes["medium"] == (2048, 256, 1)
    assert shapes["small"] == (1024, 128, 1)
    assert {PRESETS[name].char_cnn.n_filters for name in ("original", "medium", "small")} == {2048}
    original = PRESETS["original"]
    assert (original.batch_size, original.unroll_steps, original.n_epochs, original.dropout) == (
        128,
        20,
        10,
        0.1,
    )
    assert (original.n_negative_samples_batch, original.all_clip_norm_val, original.learning_rate) == (
        8192,
        10,
        0.2,
    )
    assert (original.lstm.cell_clip, original.lstm.proj_clip, original.lstm.n_layers) == (3, 3, 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_of_bilm_tf_survive_a_round_trip(variant):
    path = GOLDEN / variant / "final" / "options.json"
    theirs, options = json.loads(path.read_text()), load_options(path)
    ours = options.to_json()
    assert {key: ours[key] for key in theirs} == theirs
    assert Options.from_json(ours) == options


def test_both_numbers_of_characters_are_accepted():
    training = Options.from_json(small_options())
    inference = Options.from_json(small_options(char_cnn={"n_characters": 262}))
    assert training == inference
    assert training.to_json()["char_cnn"]["n_characters"] == 261
    assert training.to_inference_json()["char_cnn"]["n_characters"] == 262
    [problem] = problems_of(small_options(char_cnn={"n_characters": 260}))
    assert problem.startswith("char_cnn.n_characters: must be 261 (training) or 262")


def test_inference_options_of_a_dump_are_those_of_bilm_tf():
    options = load_options(GOLDEN / "char" / "final" / "options.json")
    assert options.to_inference_json() == json.loads((GOLDEN / "char" / "options.json").read_text())


@given(
    dim=st.integers(1, 5000),
    n_layers=st.integers(1, 5),
    clip=st.none() | st.floats(0.1, 10),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    filters=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2048)), min_size=1, max_size=7),
    activation=st.sampled_from(Activation),
    dropout=st.floats(0, 0.99),
)
def test_json_round_trip(dim, n_layers, clip, flags, filters, activation, dropout):
    options = Options(
        lstm=LSTMOptions(dim, max(1, dim // 2), n_layers, clip, clip, flags[0]),
        char_cnn=CharCNNOptions(tuple(filters), activation) if flags[1] else None,
        bidirectional=flags[2],
        share_embedding_softmax=flags[3] and not flags[1],
        dropout=dropout,
    )
    assert Options.from_json(json.loads(json.dumps(options.to_json()))) == options


def test_every_problem_is_named_at_once():
    values = small_options(
        batch_size="many",
        dropout=1.5,
        learning_rate=-1,
        n_epochs=0,
        lstm={"dim": 4, "projection_dim": 8, "cell_clip": 0},
        char_cnn={"activation": "gelu", "filters": [[1, 4], [30, 4]]},
        unrol_steps=3,
        share_embedding_softmax=True,
    )
    problems = problems_of(values)
    expected = {
        "batch_size: expected an integer",
        "dropout: must be below 1, got 1.5",
        "learning_rate: must be above 0, got -1",
        "n_epochs: must be at least 1, got 0",
        "lstm.projection_dim (8) must not exceed lstm.dim (4)",
        "lstm.cell_clip: must be above 0",
        "char_cnn.activation: expected one of relu, tanh",
        "char_cnn.filters: width 30 exceeds char_cnn.max_characters_per_token (20)",
        "unrol_steps: unrecognised option, did you mean unroll_steps?",
        "share_embedding_softmax: needs word input",
    }
    for start in expected:
        assert [problem for problem in problems if problem.startswith(start)], (start, problems)
    assert len(problems) == len(expected)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "the file: expected an object, got []"),
        ({}, "lstm: missing"),
        ({"lstm": 3}, "lstm: expected an object, got 3"),
        ({"lstm": {"dim": 4}}, "lstm.projection_dim: missing"),
        (small_options(lstm={"n_layers": 10**12}), "lstm.n_layers: must be at most 1000, got 1000000000000"),
        (small_options(char_cnn={"filters": [[1, 1 << 30]]}), "char_cnn.filters: expected pairs"),
        (small_options(learning_rate=1e39), "learning_rate: must be at most 3.4e+38"),
        ({"lstm": {"dim": True, "projection_dim": 1}}, "lstm.dim: expected an integer, got true"),
        (small_options(char_cnn={"filters": []}), "char_cnn.filters: expected pairs [width, number], got []"),
        (small_options(char_cnn={"filters": [[0, 3]]}), "char_cnn.filters: expected pairs"),
        (small_options(char_cnn={"filters": "x"}), "char_cnn.filters: expected a list"),
        (small_options(char_cnn={"embedding": {}}), "char_cnn.embedding.dim: missing"),
        (small_options(dropout=float("nan")), "dropout: expected a number, got NaN"),
        (small_options(softmax_bias_init="ones"), "softmax_bias_init: expected one of unigram, zeros"),
        (small_options(word_dropout=1), "word_dropout: must be below 1"),
        (small_options(type_dropout=-0.1), "type_dropout: must be at least 0"),
        (small_options(weight_dropout=1), "weight_dropout: must be below 1"),
        (small_options(weight_decay=-1), "weight_decay: must be at least 0"),
        (small_options(weight_averaging=1), "weight_averaging: must be below 1"),
        (small_options(activation_regularization=-2), "activation_regularization: must be at least 0"),
        (
            small_options(temporal_activation_regularization=1, unroll_steps=1),
            "temporal_activation_regularization: needs unroll_steps of at least 2",
        ),
        (small_options(all_clip_norm_val=0), "all_clip_norm_val: must be above 0"),
    ],
)
def test_wrong_values(values, problem):
    assert any(found.startswith(problem) for found in problems_of(values)), problems_of(values)


def test_unknown_keys_are_refused_or_collected():
    values = small_options(comment="mine", lstm={"dimm": 3})
    assert len(problems_of(values)) == 2
    options, unknown = Options.parse(values)
    assert options == Options.from_json(small_options())
    assert sorted(unknown) == ["comment", "lstm.dimm"]


def test_values_by_dotted_key():
    options = Options.from_json(small_options())
    changed = options.with_values({"lstm.dim": 16, "dropout": 0.5, "char_cnn.embedding.dim": 8})
    assert (changed.lstm.dim, changed.dropout, changed.char_cnn.embedding_dim) == (16, 0.5, 8)
    assert options.with_values({"char_cnn": None}).char_cnn is None
    assert options.with_values({}) == options
    with pytest.raises(OptionsError, match="lstm.dim.x: dim is not a section"):
        options.with_values({"lstm.dim.x": 1})
    with pytest.raises(OptionsError, match="did you mean lstm.n_layers"):
        options.with_values({"lstm.layers": 1})


def test_options_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options.from_json(small_options()).dropout = 0.5


def test_sampling_ends_where_the_sample_is_the_vocabulary():
    options = Options.from_json(small_options(n_tokens_vocab=17))
    assert options.use_sampling
    assert not dataclasses.replace(options, n_tokens_vocab=16).use_sampling
    assert not dataclasses.replace(options, sample_softmax=False).use_sampling


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"lstm": {', "not JSON: "),
        (b"", "not JSON: "),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[" * 100_000, "not JSON: objects or lists nested more than 50 deep"),
        (b"[" * 200 + b"]" * 200, "not JSON: objects or lists nested more than 50 deep"),
        (b'{"lstm": {"dim": ' + b"9" * 5000 + b"}}", "lstm.dim: expected an integer, got Infinity"),
        (b"{}", "lstm: missing"),
    ],
)
def test_unreadable_files_are_named(tmp_path, content, message):
    path = tmp_path / "options.json"
    path.write_bytes(content)
    with pytest.raises(OptionsError) as caught:
        load_options(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_a_missing_file_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "options.json"
    with pytest.raises(OptionsError, match="No such file"):
        load_options(path)
    path.write_text("\ufeff" + json.dumps(small_options()), encoding="utf-8")
    assert load_options(path) == Options.from_json(small_options())


def test_options_of_a_dump_are_of_both_directions_unless_they_deny_it(tmp_path):
    for bidirectional in (True, False):
        options = Options.from_json(small_options(bidirectional=bidirectional))
        file = write_json(tmp_path / "options.json", options.to_inference_json())
        assert ("bidirectional" in options.to_inference_json()) is not bidirectional
        assert load_inference_options(file).bidirectional is bidirectional
        assert load_inference_options(file).lstm == options.lstm
    with pytest.raises(OptionsError, match="No such file"):
        load_inference_options(tmp_path / "none")
