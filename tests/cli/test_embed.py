"""`bilm embed`: the file it writes, what it goes on with, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from bilm.cli import main
from bilm.embedding import hdf5_output as parts_writer
from bilm.embedding.bilm_tf_dumps import dump_bilm_embeddings, dump_token_embeddings
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError, OptionsError
from tests.corpora import pipe
from tests.helpers import GOLDEN, VOCAB, refuse, run, snapshot
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


def test_blank_lines_and_repeated_sentences_keep_their_numbers(text, tmp_path):
    text.write_text("a b\n\n  \na b\r\n c \n")
    output = run("embed", text, tmp_path / "out.hdf5", *MODEL)
    assert output.startswith("5 lines, 2 of them blank -> ")
    found = read(tmp_path / "out.hdf5")
    assert {key: found[key].shape[1] for key in "01234"} == {"0": 2, "1": 0, "2": 0, "3": 2, "4": 1}
    assert index_of(found) == {"a b": "3", "c": "4"}
    np.testing.assert_allclose(found["0"], found["3"], atol=1e-6)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no names for open files")
def test_a_pipe_by_its_name(tmp_path):
    assert "2 lines -> " in run("embed", pipe(b"a b\nc\n"), tmp_path / "out.hdf5", *MODEL)


def test_sentence_keys(text, tmp_path):
    lines = ["a b", "and/or c", "", "a b", "nul\0 d", ".", "and\N{DIVISION SLASH}or c"]
    text.write_text("\n".join(lines))
    run("embed", text, tmp_path / "out.hdf5", *MODEL, "--use-sentence-keys")
    run("embed", text, tmp_path / "numbers.hdf5", *MODEL)
    found, numbers = read(tmp_path / "out.hdf5"), read(tmp_path / "numbers.hdf5")
    keys = {
        "a b": "0",
        "and\N{DIVISION SLASH}or c": "1",
        "nul\N{SYMBOL FOR NULL} d": "4",
        "\N{ONE DOT LEADER}": "5",
        "and\N{DIVISION SLASH}or c\N{DIVISION SLASH}": "6",
    }
    assert found.keys() == keys.keys()
    for key, number in keys.items():
        np.testing.assert_allclose(found[key], numbers[number], atol=1e-6)


def test_indices_on_demand(text, tmp_path):
    run("embed", text, tmp_path / "a.hdf5", *MODEL, "--forget-sentences")
    assert set(read(tmp_path / "a.hdf5")) == {str(i) for i in range(24)}
    run("embed", text, tmp_path / "b.hdf5", *MODEL, "--include-sentence-indices")
    found = read(tmp_path / "b.hdf5")
    assert index_of(found, "sentence_indices") == index_of(found)


def test_dtype_and_compression(text, tmp_path):
    run("embed", text, tmp_path / "a.hdf5", *MODEL)
    run("embed", text, tmp_path / "b.hdf5", *MODEL, "--dtype", "float16", "--compression", "gzip")
    first, second = read(tmp_path / "a.hdf5"), read(tmp_path / "b.hdf5")
    for i in range(24):
        assert second[str(i)].dtype == np.float16
        np.testing.assert_allclose(second[str(i)], first[str(i)], atol=2e-3)
    with h5py.File(tmp_path / "b.hdf5") as file:
        assert file["0"].compression == "gzip"


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
    message = refuse("embed", text, tmp_path / "out.hdf5", *files)
    assert message.startswith("vocab_file: missing")
    run("embed", text, tmp_path / "out.hdf5", *files, "--vocab-file", VOCAB)
    assert len(read(tmp_path / "out.hdf5")) == 25
    (tmp_path / "short.txt").write_text("<S>\n</S>\n<UNK>\na\n")
    message = refuse("embed", text, tmp_path / "no.hdf5", *files, "--vocab-file", tmp_path / "short.txt")
    assert "has 4 words, the model 73" in message
    message = refuse("embed", text, tmp_path / "no.hdf5", *MODEL, "--vocab-file", VOCAB)
    assert "reads characters and needs no vocabulary" in message


def test_a_word_level_run_has_its_vocabulary(text, tmp_path):
    final = GOLDEN / "word-shared" / "final"
    run("embed", text, tmp_path / "out.hdf5", "--save-dir", final, "--vocab-file", VOCAB)
    assert read(tmp_path / "out.hdf5")["0"].shape == (3, 6, 24)
    assert "vocab_file: missing" in refuse("embed", text, tmp_path / "no.hdf5", "--save-dir", final)


def test_one_direction(text, tmp_path):
    run("embed", text, tmp_path / "out.hdf5", "--save-dir", GOLDEN / "char-forward" / "final")
    assert read(tmp_path / "out.hdf5")["0"].shape == (3, 6, 12)


# --- interrupted ------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(text, tmp_path, monkeypatch):
    """Stop after two chunks; a part has one chunk."""
    monkeypatch.setattr(
        "bilm.embedding.embedder.ElmoEmbedder.is_chunk", lambda self, n_sentences, _: n_sentences >= 5
    )
    monkeypatch.setattr(parts_writer, "_PART_BYTES", 1)

    def stop(flags=(), error=KeyboardInterrupt):
        written = []
        write = parts_writer.PartsWriter.write

        def write_two(self, lines, arrays):
            if len(written) == 2:
                raise error
            written.append(write(self, lines, arrays))

        with monkeypatch.context() as patch:
            patch.setattr(parts_writer.PartsWriter, "write", write_two)
            command = ["embed", str(text), str(tmp_path / "out.hdf5"), *map(str, MODEL), *flags]
            return CliRunner().invoke(main, command)

    return stop


@pytest.mark.parametrize("flags", [(), ("--use-sentence-keys",), ("--top", "--dtype", "float16")])
def test_resume_finishes_what_was_interrupted(flags, interrupted, text, tmp_path):
    text.write_text("a b\n\na b\n" + text.read_text())
    out = tmp_path / "out.hdf5"
    result = interrupted(flags)
    assert result.exit_code == 1 and "with --resume continues" in result.output
    assert not out.exists() and len(list((tmp_path / "out.hdf5.parts").iterdir())) == 2
    assert "--resume finishes it" in refuse("embed", text, out, *MODEL, *flags)
    (tmp_path / "out.hdf5.parts" / "part-000000000010.hdf5.abcdefgh.tmp").write_text("half a part")
    output = run("embed", text, out, *MODEL, *flags, "--resume")
    assert "27 lines, 1 of them blank, 10 of them done before" in output
    run("embed", text, tmp_path / "whole.hdf5", *MODEL, *flags)
    assert_same(read(out), read(tmp_path / "whole.hdf5"), atol=1e-3 if "--dtype" in flags else 1e-6)
    assert not (tmp_path / "out.hdf5.parts").exists()
    before = out.read_bytes()
    assert "27 of them done before" in run("embed", text, out, *MODEL, *flags, "--resume")
    assert out.read_bytes() == before


def test_resume_goes_on_with_a_longer_text(interrupted, text, tmp_path):
    whole = text.read_text()
    run("embed", text, tmp_path / "whole.hdf5", *MODEL)
    text.write_text("".join(line + "\n" for line in whole.splitlines()[:7]))
    run("embed", text, tmp_path / "out.hdf5", *MODEL)
    text.write_text(whole)
    assert "7 of them done before" in run("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")
    assert_same(read(tmp_path / "out.hdf5"), read(tmp_path / "whole.hdf5"), atol=1e-6)


def test_resume_with_nothing_to_go_on_with_begins(text, tmp_path):
    run("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")
    assert len(read(tmp_path / "out.hdf5")) == 25


def test_resume_of_something_else_is_refused(interrupted, text, tmp_path):
    interrupted()
    out = tmp_path / "out.hdf5"
    assert "layers all instead of top" in refuse("embed", text, out, *MODEL, "--top", "--resume")
    other = GOLDEN / "char" / "step0"
    assert "model " in refuse("embed", text, out, "--save-dir", other, "--resume")
    text.write_text("another\n" + text.read_text())
    assert "belongs to another text" in refuse("embed", text, out, *MODEL, "--resume")
    text.write_text("another\n")
    assert "belongs to another text" in refuse("embed", text, out, *MODEL, "--resume")
    run("embed", text, out, *MODEL, "--overwrite")
    assert len(read(out)) == 2 and not (tmp_path / "out.hdf5.parts").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bilm_lines", -1, "damaged, as it ends at line -1, before the previous part does"),
        ("bilm_lines", 1.5, "its attribute bilm_lines is not what bilm embed writes"),
        ("bilm_lines", h5py.Empty("i4"), "its attribute bilm_lines is not what bilm embed writes"),
        ("bilm_text", 5, "its attribute bilm_text is not what bilm embed writes"),
        ("bilm_settings", "of variable length", "its attribute bilm_settings is not what bilm embed writes"),
        ("bilm_settings", np.bytes_("[1]"), "was written with other settings: its settings are [1]"),
        ("bilm_settings", np.bytes_("{"), "cannot be read as HDF5: Expecting property name"),
    ],
)
def test_resume_of_what_is_damaged_is_refused(interrupted, text, tmp_path, name, value, message):
    interrupted()
    part = sorted((tmp_path / "out.hdf5.parts").iterdir())[1]
    with h5py.File(part, "a") as file:
        del file.attrs[name]
        file.attrs[name] = value
    assert f"{part}: {message}" in refuse("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")


def test_what_another_program_wrote_is_not_gone_on_with(text, tmp_path):
    h5py.File(tmp_path / "out.hdf5", "w").close()
    message = refuse("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")
    assert "was not written by bilm embed" in message
    (tmp_path / "out.hdf5").write_text("x")
    message = refuse("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")
    assert "cannot be read as HDF5" in message


def test_a_full_disk(interrupted, text, tmp_path, monkeypatch):
    full = OSError("Can't write data (errno = 28, error message = 'No space left on device', buf = 0x1)")
    create = h5py.File.create_dataset
    n_written = []

    def fail(self, *arguments, **named):
        n_written.append(1)
        if len(n_written) > 7:
            raise full
        return create(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(h5py.File, "create_dataset", fail)
        message = refuse("embed", text, tmp_path / "out.hdf5", *MODEL)
    assert message == f"{tmp_path / 'out.hdf5'}: cannot be written: No space left on device"
    assert [path.name for path in (tmp_path / "out.hdf5.parts").iterdir()] == ["part-000000000000.hdf5"]
    run("embed", text, tmp_path / "out.hdf5", *MODEL, "--resume")
    assert len(read(tmp_path / "out.hdf5")) == 25


# --- what is refused --------------------------------------------------------------------------------


def test_an_output_that_exists(text, tmp_path):
    out = tmp_path / "out.hdf5"
    out.write_text("mine")
    message = refuse("embed", text, out, *MODEL)
    assert message == f"{out}: exists; --overwrite replaces it, --resume continues it"
    with pytest.raises(DataError, match="exists; overwrite=True replaces it, resume=True continues it"):
        ElmoEmbedder(CHAR / "options.json", CHAR / "weights.hdf5").embed_file(
            text, out
        )  # the library speaks of arguments, not of flags
    assert out.read_text() == "mine"
    run("embed", text, out, *MODEL, "--overwrite")
    assert len(read(out)) == 25


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


def test_two_calls_with_one_output(interrupted, text, tmp_path):
    """The second is refused while the first works, and finishes what the first leaves."""
    from bilm.embedding.hdf5_output import parts_held

    interrupted()
    out = tmp_path / "out.hdf5"
    with parts_held(out):
        message = refuse("embed", text, out, *MODEL, "--resume")
        assert message.startswith(f"{out}: is being written by host ")
        assert f"process {os.getpid()}; wait for it to finish" in message
    run("embed", text, out, *MODEL, "--resume")
    assert len(read(out)) == 25


def test_a_symlink_is_written_through(text, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "real.hdf5").touch()
    (tmp_path / "out.hdf5").symlink_to("disk/real.hdf5")
    run("embed", text, tmp_path / "out.hdf5", *MODEL, "--overwrite")
    assert (tmp_path / "out.hdf5").is_symlink() and len(read(tmp_path / "disk" / "real.hdf5")) == 25


def test_a_call_that_is_ended_leaves_parts_alone(interrupted, tmp_path):
    """As a signal ends it."""
    result = interrupted(error=SystemExit(143))
    assert result.exit_code == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5.parts", "text.txt"]
    assert {path.suffix for path in (tmp_path / "out.hdf5.parts").iterdir()} == {".hdf5"}


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


def test_the_state_is_carried_over_chunks(text, tmp_path):
    embedder = ElmoEmbedder(*MODEL[1::2], stateful=True, batch_size=4)
    sentences = [line.split() for line in text.read_text().splitlines()]
    embedder._embed.batch_tokens = 1
    for found, expected in zip(embedder.embed_sentences(sentences), golden("char", "stateful"), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    with pytest.raises(DataError, match="5 sentences, and the state of 4 is carried"):
        embedder.embed_batch(sentences[:5])
    with pytest.raises(OptionsError, match="resume"):
        embedder.embed_file(text, tmp_path / "out.hdf5", resume=True)
    with pytest.raises(OptionsError, match="batch_tokens"):
        ElmoEmbedder(*MODEL[1::2], stateful=True, batch_tokens=100)
