"""`bilm embed`: the file it writes, what it goes on with, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from bilm.cli import main
from bilm.embedding import hdf5_output, packed_embedder
from bilm.embedding.embedder import ElmoEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.errors import DataError, OptionsError
from tests.corpora import pipe
from tests.helpers import GOLDEN, VOCAB, invoke, refuse, run, snapshot
from tests.models.test_bidirectional_lm import VARIANTS, golden, write_model

pytestmark = pytest.mark.usefixtures("opened_once")

CHAR = GOLDEN / "char"
MODEL = ("--options-file", CHAR / "options.json", "--weight-file", CHAR / "weights.hdf5")


@pytest.fixture
def text(tmp_path):
    lines = (CHAR / "heldout.txt").read_text().splitlines()[:24]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.txt"


def read(path):
    with h5py.File(path) as file:
        return {key: file[key][()] for key in file}


def index_of(datasets, name="sentence_to_index"):
    assert datasets[name].shape == (1,)
    return json.loads(datasets[name][0])


def assert_same(found, expected, atol=0.0):
    assert found.keys() == expected.keys()
    for key in expected:
        if expected[key].dtype == object:
            assert found[key].tolist() == expected[key].tolist()
        else:
            assert found[key].dtype == expected[key].dtype
            np.testing.assert_allclose(found[key], expected[key], atol=atol, rtol=0, err_msg=key)


# --- what is written --------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("flags", "group"),
    [
        ((), "stateless"),
        pytest.param(("--batch-tokens", 40), "stateless", marks=pytest.mark.slow),
        (("--stateful", "--batch-size", 4), "stateful"),
    ],
)
def test_agrees_with_bilm_tf(variant, flags, group, text, tmp_path):
    folder = GOLDEN / variant
    lines = (folder / "heldout.txt").read_text().splitlines()[:24]
    text.write_text("\n".join(lines))
    out = tmp_path / "out.hdf5"
    model = ("--options-file", folder / "options.json", "--weight-file", folder / "weights.hdf5")
    run("embed", text, out, *model, *flags)
    found = read(out)
    assert index_of(found) == {line: str(i) for i, line in enumerate(lines)}
    for i, expected in enumerate(golden(variant, group)):
        assert found[str(i)].dtype == np.float32 and found[str(i)].shape == expected.shape
        np.testing.assert_allclose(found[str(i)], expected, atol=1e-5, rtol=0)
    assert len(found) == 25
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5", "text.txt"]


def test_a_run_gives_what_its_dump_gives(text, tmp_path):
    run("embed", text, tmp_path / "a.hdf5", *MODEL)
    run("embed", text, tmp_path / "b.hdf5", "--save-dir", CHAR / "final")
    assert_same(read(tmp_path / "a.hdf5"), read(tmp_path / "b.hdf5"))


@pytest.mark.parametrize(
    ("flags", "choose"),
    [
        (("--all",), lambda layers: layers),
        (("--top",), lambda layers: layers[-1]),
        (("--average",), lambda layers: layers.mean(axis=0)),
        (("--layer", 0), lambda layers: layers[0]),
        (("--layer", 2), lambda layers: layers[2]),
    ],
)
def test_layers(flags, choose, text, tmp_path):
    text.write_text("a b c\n\nd\n")
    run("embed", text, tmp_path / "all.hdf5", *MODEL)
    run("embed", text, tmp_path / "out.hdf5", *MODEL, *flags)
    expected, found = read(tmp_path / "all.hdf5"), read(tmp_path / "out.hdf5")
    for key in "02":
        np.testing.assert_allclose(found[key], choose(expected[key]), atol=1e-6)
    assert found["1"].shape == ((3, 0, 24) if flags == ("--all",) else (0, 24))


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no names for open files")
def test_a_pipe_by_its_name(tmp_path):
    assert "2 lines -> " in run("embed", pipe(b"a b\nc\n"), tmp_path / "out.hdf5", *MODEL)


def test_standard_input(text, tmp_path):
    run("embed", text, tmp_path / "a.hdf5", *MODEL)
    command = ["embed", "-", str(tmp_path / "b.hdf5"), *map(str, MODEL)]
    result = CliRunner().invoke(main, command, input=text.read_bytes())
    assert result.exit_code == 0, result.output
    assert_same(read(tmp_path / "b.hdf5"), read(tmp_path / "a.hdf5"))
    result = CliRunner().invoke(main, [*command, "--overwrite"], input=b"a\nb \xff\n")
    assert result.exit_code == 1
    assert "Error: standard input: line 2: not UTF-8 (byte 0xff" in result.output
    assert_same(read(tmp_path / "b.hdf5"), read(tmp_path / "a.hdf5"))  # what was there stays


def test_word_level_models(text, tmp_path, monkeypatch):
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None)
    files = ("--options-file", options, "--weight-file", weights)
    message = refuse("embed", text, tmp_path / "out.hdf5", *files, status=2)
    assert message.endswith("holds no vocabulary; give --vocab-file")
    run("embed", text, tmp_path / "out.hdf5", *files, "--vocab-file", VOCAB)
    assert len(read(tmp_path / "out.hdf5")) == 25
    (tmp_path / "short.txt").write_text("<S>\n</S>\n<UNK>\na\n")
    message = refuse("embed", text, tmp_path / "no.hdf5", *files, "--vocab-file", tmp_path / "short.txt")
    assert "has 4 words, the model in" in message
    message = refuse("embed", text, tmp_path / "no.hdf5", *MODEL, "--vocab-file", VOCAB)
    assert "reads characters and needs no vocabulary" in message


def test_a_word_level_run_has_its_vocabulary(text, tmp_path):
    final = GOLDEN / "word-shared" / "final"
    run("embed", text, tmp_path / "out.hdf5", "--save-dir", final, "--vocab-file", VOCAB)
    assert read(tmp_path / "out.hdf5")["0"].shape == (3, 6, 24)
    message = refuse("embed", text, tmp_path / "no.hdf5", "--save-dir", final, status=2)
    assert message.endswith("holds no vocabulary; give --vocab-file")


def test_one_direction(text, tmp_path):
    run("embed", text, tmp_path / "out.hdf5", "--save-dir", GOLDEN / "char-forward" / "final")
    assert read(tmp_path / "out.hdf5")["0"].shape == (3, 6, 12)


def test_flags_of_the_file_and_of_an_interrupted_command(text, tmp_path, monkeypatch):
    out = tmp_path / "out.hdf5"
    flags = (
        "--top",
        "--dtype",
        "float16",
        "--compression",
        "gzip",
        "--use-sentence-keys",
        "--batch-tokens",
        30,
    )
    write = hdf5_output.embed_file

    def interrupted(embedder, lines, *arguments, **settings):
        def first_lines():
            yield from islice(lines, 12)
            raise KeyboardInterrupt

        return write(embedder, first_lines(), *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(hdf5_output, "embed_file", interrupted)
        result = invoke("embed", text, out, *MODEL, *flags)
    assert result.exit_code == 1 and "with --resume continues" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5.parts", "text.txt"]
    assert "--resume finishes it" in refuse("embed", text, out, *MODEL, *flags)
    said = run("embed", text, out, *MODEL, *flags, "--resume")
    assert re.search(r"24 lines, \d+ of them done before -> .*: \(words, 24\) float16; ", said)
    lines = text.read_text().splitlines()
    with h5py.File(out) as file:
        assert {*file} == {*lines} and file[lines[0]].compression == "gzip"
        for line, expected in zip(lines, golden("char", "stateless"), strict=True):
            assert file[line].dtype == np.float16
            np.testing.assert_allclose(file[line], expected[-1], atol=2e-3)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--top", "--average"), "give one of --all, --top, --average, --layer"),
        (("--all", "--layer", 1), "give one of"),
        (("--resume", "--overwrite"), "contradict"),
        (("--resume", "--stateful"), "not saved"),
        (("--stateful", "--batch-tokens", 9), "give --batch-size instead"),
        (("--forget-sentences", "--include-sentence-indices"), "contradicts"),
        (("--save-dir", "x"), "--save-dir, or --options-file and --weight-file, and only one of them"),
        (("--model", "x"), "give --model, --save-dir, or"),
    ],
)
def test_flags_that_contradict_each_other(flags, message, text, tmp_path):
    assert message in refuse("embed", text, tmp_path / "out.hdf5", *MODEL, *flags, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_bad_input(text, tmp_path):
    out = tmp_path / "out.hdf5"
    assert "give --model, --save-dir, or --options-file and --weight-file" in refuse(
        "embed", text, out, status=2
    )
    assert "No such file" in refuse("embed", tmp_path / "none", out, *MODEL)
    assert "layer 3: the model has layers 0 to 2" in refuse("embed", text, out, *MODEL, "--layer", 3)
    assert "cuda_device is 99; TensorFlow finds" in refuse("embed", text, out, *MODEL, "--cuda-device", 99)
    wrong = (*MODEL[:2], "--weight-file", text)
    assert "cannot be read as HDF5" in refuse("embed", text, out, *wrong)
    message = refuse("embed", text, tmp_path / "none" / "out.hdf5", *MODEL)
    assert message == f"{tmp_path / 'none' / 'out.hdf5'}: cannot be written: No such file or directory"
    text.write_text("")
    assert "there are no sentences to embed" in refuse("embed", text, out, *MODEL)
    text.write_bytes(b"a\n\xff\n")
    assert "line 2: not UTF-8" in refuse("embed", text, out, *MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def no_tensorflow(_backend):
    raise AssertionError("it was begun")


@pytest.mark.parametrize("name", ["text.txt", "options.json", "weights.hdf5", "vocab.txt"])
def test_what_is_read_is_not_written_over(name, text, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.cli.commands.embed.import_backend", no_tensorflow)
    for other in ("options.json", "weights.hdf5", "vocab.txt"):
        shutil.copy(CHAR / other, tmp_path)
    before = snapshot(tmp_path)
    model = ("--options-file", tmp_path / "options.json", "--weight-file", tmp_path / "weights.hdf5")
    command = ("embed", text, tmp_path / name, *model, "--vocab-file", tmp_path / "vocab.txt", "--overwrite")
    assert refuse(*command) == f"{tmp_path / name}: it is an input and would be lost; give another name"
    assert snapshot(tmp_path) == before


def test_a_run_is_not_written_over(text, run_copy, monkeypatch):
    monkeypatch.setattr("bilm.cli.commands.embed.import_backend", no_tensorflow)
    message = refuse("embed", text, run_copy / "model.ckpt-2.index", "--save-dir", run_copy, "--overwrite")
    assert message.endswith("it is an input and would be lost; give another name")


def test_outputs_that_are_no_file_are_refused_before_the_text_is_read(text, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.cli.commands.embed.import_backend", no_tensorflow)
    text.write_bytes(b"\xff\n")
    (tmp_path / "link").symlink_to("none")
    for out in (tmp_path, "/dev/null", tmp_path / "link"):
        message = refuse("embed", text, out, *MODEL, "--overwrite")
        assert message.startswith(f"{out}: is a ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "text.txt"]


# --- in Python --------------------------------------------------------------------------------------


def test_what_is_read_is_not_written_over_in_python(text, tmp_path):
    with pytest.raises(DataError, match="it is an input and would be lost"):
        ElmoEmbedder(*MODEL[1::2]).embed_file(text, text, overwrite=True)
    with pytest.raises(DataError, match="it is an input and would be lost"):
        dump_bilm_embeddings(VOCAB, text, *MODEL[1::2], text)
    with pytest.raises(DataError, match="it is an input and would be lost"):
        dump_token_embeddings(text, *MODEL[1::2], text)


def test_embedder_in_python(text, tmp_path):
    embedder = ElmoEmbedder(CHAR / "options.json", CHAR / "weights.hdf5", batch_tokens=30, max_cached_words=9)
    sentences = [line.split() for line in text.read_text().splitlines()]
    expected = golden("char", "stateless")
    for found in (
        embedder.embed_batch(sentences),
        list(embedder.embed_sentences(iter(sentences))),
        [embedder.embed_sentence(words) for words in sentences],
    ):
        assert len(found) == 24
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=0)
    assert embedder.embed_sentence([]).shape == (3, 0, 24)
    assert embedder.embed_batch([]) == []
    report = embedder.embed_file(text, tmp_path / "out.hdf5", layers="top")
    assert report.n_lines == 24 and report.n_tokens == sum(map(len, sentences))
    np.testing.assert_allclose(read(tmp_path / "out.hdf5")["3"], expected[3][-1], atol=1e-5)


@pytest.mark.parametrize(
    ("stateful", "flags"),
    [(False, ()), pytest.param(True, ("--stateful", "--batch-size", 1), marks=pytest.mark.slow)],
)
def test_dump_bilm_embeddings(stateful, flags, text, tmp_path):
    dump_bilm_embeddings(VOCAB, text, *MODEL[1::2], tmp_path / "a.hdf5", stateful=stateful)
    run("embed", text, tmp_path / "b.hdf5", *MODEL, *flags, "--forget-sentences")
    assert_same(read(tmp_path / "a.hdf5"), read(tmp_path / "b.hdf5"))
    assert read(tmp_path / "a.hdf5").keys() == {str(i) for i in range(24)}


def test_the_state_is_carried_over_chunks(text, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_embedder, "_BATCH_TOKENS", 1)  # a batch is a chunk
    embedder = ElmoEmbedder(*MODEL[1::2], stateful=True, batch_size=4)
    sentences = [line.split() for line in text.read_text().splitlines()]
    vectors = embedder.embed_sentences(sentences)
    for actual, expected in zip(vectors, golden("char", "stateful"), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)
    with pytest.raises(DataError, match="5 sentences, and the state of 4 is carried"):
        embedder.embed_batch(sentences[:5])
    with pytest.raises(OptionsError, match="resume"):
        embedder.embed_file(text, tmp_path / "out.hdf5", resume=True)
    with pytest.raises(OptionsError, match="batch_tokens"):
        ElmoEmbedder(*MODEL[1::2], stateful=True, batch_tokens=100)
