"""Hyper-parameters: the JSON form, presets, and every way to get them wrong."""

import dataclasses
import json
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.errors import OptionsError
from bilm.io.json_objects import parse_json
from bilm.options import PRESETS, Activation, CharCNNOptions, LSTMOptions, Optimizer, Options
from bilm.options.options_file import (
    choose_options,
    load_inference_options,
    load_options,
    read_options,
    toml_lines,
)
from tests.helpers import GOLDEN, VARIANTS, small_options, write_json


def problems_of(values):
    """The problems found, one a line."""
    with pytest.raises(OptionsError) as caught:
        Options.from_json(values)
    head, *lines = str(caught.value).splitlines()
    assert head == "invalid options:"
    return [line.strip() for line in lines]


@pytest.mark.parametrize("variant", VARIANTS)
def test_bilm_tf_options_round_trip(variant):
    path = GOLDEN / variant / "final" / "options.json"
    theirs, options = json.loads(path.read_text()), load_options(path)
    ours = options.to_json()
    assert {key: ours[key] for key in theirs} == theirs
    assert Options.from_json(ours).to_json() == ours


def test_n_characters_may_be_262():
    training = Options.from_json(small_options())
    assert training == Options.from_json(small_options(char_cnn={"n_characters": 262}))
    assert training.to_json()["char_cnn"]["n_characters"] == 261
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
    written = json.loads(json.dumps(options.to_json()))
    assert Options.from_json(written) == dataclasses.replace(options, learning_rate=0.2)


def test_problems_are_listed_together():
    values = small_options(batch_size="many", dropout=1.5, lstm={"cell_clip": -1}, unrol_steps=3)
    values["char_cnn"] |= {"activation": "gelu", "n_characters": 260}
    assert sorted(problem.partition(",")[0] for problem in problems_of(values)) == [
        "'unrol_steps': unrecognised option",
        "batch_size: expected an integer",
        "char_cnn.activation: expected one of relu",
        "char_cnn.n_characters: must be 261 (training) or 262 (inference)",
        "dropout: must be below 1",
        "lstm.cell_clip: must be at least 0",
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "the file: expected an object, got []"),
        ({"lstm": {"dim": 4}}, "lstm.projection_dim: missing"),
        ({"lstm": {"dim": True, "projection_dim": 1}}, "lstm.dim: expected an integer, got true"),
        (small_options(lstm={"n_layers": 10**12}), "lstm.n_layers: must be at most 1000, got 1000000000000"),
        (small_options(batch_size=parse_json("9" * 20)), "batch_size: must be at most 1048576, got 9999"),
        (small_options(n_epochs=parse_json("9" * 20)), "n_epochs: must be at most 9223372036854775807, got"),
        (small_options(char_cnn={"filters": []}), "char_cnn.filters: expected at least one pair"),
        (small_options(char_cnn={"filters": [[1, 2, 3]]}), "char_cnn.filters[0]: expected a list of 2, got"),
        (small_options(char_cnn={"filters": [[1]]}), "char_cnn.filters[0]: expected a list of 2, got [1]"),
        (small_options(char_cnn={"filters": [[0, 2]]}), "char_cnn.filters[0][0]: must be at least 1, got 0"),
        (small_options(learning_rate=1e39), "learning_rate: must be at most 3.4e+38"),
        (
            small_options(lstm={"use_skip_connections": "false"}),
            "lstm.use_skip_connections: expected true or",
        ),
        (small_options(dropout=float("nan")), "dropout: expected a number, got NaN"),
        # of values that are right by themselves
        (
            small_options(lstm={"dim": 4, "projection_dim": 8}),
            "lstm.projection_dim (8) must not exceed lstm.dim (4)",
        ),
        (
            small_options(char_cnn={"filters": [[1, 4], [30, 4]]}),
            "char_cnn.filters: width 30 exceeds char_cnn.max_characters_per_token (20)",
        ),
        (small_options(share_embedding_softmax=True), "share_embedding_softmax: needs word input"),
    ],
)
def test_wrong_values(values, problem):
    assert any(found.startswith(problem) for found in problems_of(values)), problems_of(values)


def test_whole_floats_become_integers():
    values = {"batch_size": 3.0, "n_epochs": np.int64(2), "lstm": {"dim": 8.0, "projection_dim": np.int32(4)}}
    options = Options.from_json(values)
    assert json.dumps(options.to_json()["lstm"]).startswith('{"dim": 8, "projection_dim": 4,')
    assert (type(options.batch_size), type(options.n_epochs)) == (int, int)


def test_options_check_themselves():
    tiny = PRESETS["tiny"]
    for make in (
        lambda: Options(tiny.lstm, dropout=7.0),
        lambda: dataclasses.replace(tiny, dropout=7.0),
        lambda: tiny.with_values({"dropout": 7.0}),
    ):
        with pytest.raises(OptionsError, match=r"^invalid options:\n  dropout: must be below 1, got 7.0$"):
            make()
    with pytest.raises(OptionsError, match="dim: must be at least 1, got 0\n.*projection_dim: expected an"):
        LSTMOptions(0, "8")
    with pytest.raises(OptionsError, match='expected one of adagrad, .*got "madam"'):
        dataclasses.replace(tiny, optimizer="madam")
    assert Options(LSTMOptions(8, 4), optimizer="muon").optimizer is Optimizer.MUON


def test_learning_rate_defaults_to_the_optimizers():
    muon = Optimizer.MUON
    options = (
        Options(LSTMOptions(8, 4), optimizer=muon),
        dataclasses.replace(PRESETS["tiny"], optimizer=muon),
        PRESETS["tiny"].with_values({"optimizer": "muon"}),
        Options.from_json({"lstm": {"dim": 8, "projection_dim": 4}, "optimizer": "muon"}),
    )
    assert {(each.learning_rate, each.step_size) for each in options} == {(None, 0.006)}
    assert {each.to_json()["learning_rate"] for each in options} == {0.006}
    given = Options(LSTMOptions(8, 4), learning_rate=0.3)
    assert dataclasses.replace(given, optimizer=muon).step_size == 0.3


def test_published_values_are_read():
    published = small_options(lstm={"cell_clip": 0, "proj_clip": 0.0, "use_skip_connections": "true"})
    options = Options.from_json(published)
    assert options.to_inference_json()["lstm"] == published["lstm"] | {
        **{"cell_clip": None, "proj_clip": None, "use_skip_connections": True}
    }
    assert published["lstm"]["use_skip_connections"] == "true", "the object that was given is not changed"


def test_unknown_keys_are_refused_or_collected(tmp_path, caplog):
    values = small_options(comment="mine", lstm={"dimm": 3})
    assert len(problems_of(values)) == 2
    options, unknown = Options.parse(values)
    assert options == Options.from_json(small_options()) and sorted(unknown) == ["comment", "lstm.dimm"]
    assert read_options(write_json(tmp_path / "options.json", values)) == options
    assert caplog.text.endswith("options.json: unrecognised options: comment, lstm.dimm\n")


def test_dropped_options_are_unknown_unless_off():
    off = {"type_dropout": 0.0, "weight_dropout": 0, "weight_averaging": None}
    options = Options.from_json(small_options())
    assert Options.from_json(small_options() | off) == options
    assert Options.parse(small_options() | off | {"weight_dropout": 0.5}) == (options, ["weight_dropout"])
    assert problems_of(small_options() | {"weight_dropout": 0.5})


def test_values_by_dotted_key():
    options = Options.from_json(small_options())
    changed = options.with_values({"lstm.dim": 16, "dropout": 0.5, "char_cnn.embedding.dim": 8})
    assert (changed.lstm.dim, changed.dropout, changed.char_cnn.embedding_dim) == (16, 0.5, 8)
    nested = {"lstm": {"dim": 16}, "dropout": 0.5, "char_cnn": {"embedding": {"dim": 8}}}
    assert options.with_values(nested) == changed
    assert options.with_values({"char_cnn": None}).char_cnn is None
    with pytest.raises(OptionsError, match="char_cnn"):
        options.with_values({"char_cnn": {}})
    with pytest.raises(OptionsError, match="lstm.dim.x: dim is not a section"):
        options.with_values({"lstm.dim.x": 1})
    with pytest.raises(OptionsError, match="dropout.x: dropout is not a section"):
        options.with_values({"dropout": {"x": 1}})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("lstm.layers", ", did you mean lstm.n_layers?"),
        ("optimizer_type", ", did you mean optimizer?"),
        ("dro", ""),
    ],
)
def test_unknown_key_has_a_hint(key, hint):
    with pytest.raises(OptionsError) as caught:
        Options.from_json(small_options()).with_values({key: 1})
    assert str(caught.value) == f"invalid options:\n  {key!r}: unrecognised option{hint}"


def test_counts_in_a_file_are_ignored(tmp_path):
    values = small_options(n_tokens_vocab=793471, n_train_tokens=768648884)
    options = choose_options(None, write_json(tmp_path / "options.json", values))
    assert options == Options.from_json(small_options())
    assert choose_options(None, values).n_tokens_vocab == 793471


def test_presets_have_the_published_shapes():
    assert choose_options(None, None) == PRESETS["laptop"]
    sizes = {name: (p.batch_size, p.n_negative_samples_batch, p.n_epochs) for name, p in PRESETS.items()}
    published = dict.fromkeys(("original", "medium", "small"), (128, 8192, 10))
    assert sizes == published | {"laptop": (64, 2048, 10), "tiny": (32, 8192, 2)}
    shapes = {name: (p.lstm.dim, p.lstm.projection_dim, p.char_cnn.n_highway) for name, p in PRESETS.items()}
    del shapes["tiny"]
    assert shapes.pop("laptop") == (320, 256, 1) and PRESETS["laptop"].char_cnn.n_filters == 768
    assert shapes == {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1)}
    assert {PRESETS[name].char_cnn.n_filters for name in shapes} == {2048}


def test_sampling_needs_a_larger_vocabulary():
    options = Options.from_json(small_options(n_tokens_vocab=17))
    assert options.use_sampling
    assert not dataclasses.replace(options, n_tokens_vocab=16).use_sampling
    assert not dataclasses.replace(options, sample_softmax=False).use_sampling


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"lstm": {', "not JSON: "),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[" * 100_000, "not JSON: objects or lists nested too deep"),
        (b'{"a": 1, "a": 2}', "not JSON: the key 'a' is repeated in an object"),
    ],
    ids=["cut off", "utf-16", "deep", "repeated key"],
)
def test_unreadable_files_are_named(tmp_path, content, message):
    (tmp_path / "options.json").write_bytes(content)
    for load in (load_options, load_inference_options):
        with pytest.raises(OptionsError, match=f"^{tmp_path}/options.json: .*{message}"):
            load(tmp_path / "options.json")
        with pytest.raises(OptionsError, match="none.json: No such file"):
            load(tmp_path / "none.json")


def test_toml(tmp_path):
    file, values = tmp_path / "options.conf", small_options(learning_rate=1e-5)
    file.write_text("\n".join(toml_lines(values)))
    assert load_options(file) == Options.from_json(values)
    for text, message in (
        ("lstm.dim = 2 3", "not TOML: Expected newline"),
        ("a" + ".a" * 9999 + " = 1", "not TOML: maximum recursion depth"),
        ("seed = " + "9" * 9999, "not TOML: Exceeds the limit"),
        (
            "[lstm]\ndim = 1979-05-27\nprojection_dim = 2\n",
            '\n  lstm.dim: expected an integer, got "1979-05-27"',
        ),
        ("n_epoch = 1", "\n  'n_epoch': unrecognised option, did you mean n_epochs"),
    ):
        file.write_text(text)
        with pytest.raises(OptionsError, match=f"^{file}: ") as caught:
            load_options(file)
        assert message in str(caught.value)


KEYS = st.sampled_from(["a", "b_c", "d1", "_"])
SCALARS = (
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TOML = st.recursive(
    SCALARS | st.text('aé"\\\n\t\x00\x7f\u2028😀'),
    lambda inner: st.lists(SCALARS) | st.dictionaries(KEYS, inner),
)


@given(st.dictionaries(KEYS, TOML))
def test_toml_round_trip(values):
    assert tomllib.loads("\n".join(toml_lines(values))) == values


def test_dump_options_are_bidirectional(tmp_path):
    of_run = small_options(bidirectional=None)
    of_dump = small_options(bidirectional=None, char_cnn={"n_characters": 262})
    of_words = {"lstm": of_run["lstm"], "unicode_form": "NFC"}
    for values, bidirectional in ((of_run, False), (of_dump, True), (of_words, True)):
        for form in (values, write_json(tmp_path / "any.json", values)):
            assert choose_options(None, form).bidirectional is bidirectional
    for bidirectional in (True, False):
        options = Options.from_json(small_options(bidirectional=bidirectional))
        file = write_json(tmp_path / "options.json", options.to_inference_json())
        assert ("bidirectional" in options.to_inference_json()) is not bidirectional
        found = load_inference_options(file)
        assert found.bidirectional is bidirectional and found.lstm == options.lstm
    file.write_text("\ufeff" + file.read_text(), encoding="utf-8")  # a byte order mark
    assert load_inference_options(file) == found
