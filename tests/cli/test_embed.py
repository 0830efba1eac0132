"""`bilm embed`: the file it writes, what it goes on with, and what it refuses."""

import json
import os
import re
import shutil
import sys
from itertools import islice

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from bilm.cli import main
from bilm.embedding import hdf5_output, parquet_output
from bilm.embedding.chunk_embedder import ChunkEmbedder
from bilm.embedding.embedder import ElmoEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.errors import DataError
from tests.corpora import write
from tests.distributed import model_files, write_folder
from tests.helpers import CHAR, GOLDEN, MODEL, VOCAB, hdf5_arrays, invoke, raising, refuse, run, snapshot
from tests.models.test_bidirectional_lm import VARIANTS, golden, write_model

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture
def text(tmp_path):
    lines = (CHAR / "heldout.txt").read_text().splitlines()[:24]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.txt"


# --- what is written --------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("flags", "group"),
    [((), "stateless"), (("--stateful", "--batch-size", 4), "stateful")],
    ids=["stateless", "stateful"],
)
def test_agrees_with_bilm_tf(variant, flags, group, text, tmp_path, monkeypatch):
    monkeypatch.setattr(ChunkEmbedder, "chunk_size", (0, 8))
    folder = GOLDEN / variant
    lines, out = text.read_text().splitlines(), tmp_path / "out.hdf5"
    model = ("--options-file", folder / "options.json", "--weight-file", folder / "weights.hdf5")
    run("embed", text, out, *model, *flags)
    found = hdf5_arrays(out)
    assert found["sentence_to_index"].shape == (1,)
    assert json.loads(found["sentence_to_index"][0]) == {line: str(i) for i, line in enumerate(lines)}
    for i, expected in enumerate(golden(variant, group)):
        assert found[str(i)].dtype == np.float32 and found[str(i)].shape == expected.shape
        np.testing.assert_allclose(found[str(i)], expected, atol=1e-5, rtol=0)
    assert len(found) == 25
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5", "text.txt"]


@pytest.mark.slow
def test_layers(text, tmp_path):
    layers, words = golden("char", "stateless")[0], [text.read_text().splitlines()[0].split()]
    embedder = ElmoEmbedder(*MODEL[1::2])
    expected = {
        "--all": layers,
        "--top": layers[-1],
        "--average": layers.mean(axis=0),
        "--layer=0": layers[0],
        "--characters": next(embedder.embed_sentences(words, layers="characters")),
        "--concat": next(embedder.embed_sentences(words, layers="concat")),
        "--pooling=mean": layers.mean(axis=1),
    }
    for flag, vectors in expected.items():
        run("embed", text, tmp_path / "out.hdf5", *MODEL, flag, "--overwrite")
        np.testing.assert_allclose(hdf5_arrays(tmp_path / "out.hdf5")["0"], vectors, atol=1e-5)


def test_standard_input(text, tmp_path, caplog):
    out = tmp_path / "out.hdf5"
    command = ["embed", "-", str(out), *map(str, MODEL)]
    result = CliRunner().invoke(main, command, input=text.read_bytes() + b"<S> a\n")
    assert result.exit_code == 0 and "25 lines -> " in result.output
    assert "the text contains <S> or </S> 1 times" in caplog.text
    before = out.read_bytes()
    result = CliRunner().invoke(main, [*command, "--overwrite"], input=b"a\nb \xff\n")
    assert result.exit_code == 1
    assert "Error: standard input: line 2: not UTF-8 (byte 0xff" in result.output
    assert out.read_bytes() == before


@pytest.mark.slow
def test_word_level_models(text, tmp_path):
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None)
    files = ("--options-file", options, "--weight-file", weights)
    message = refuse("embed", text, tmp_path / "out.hdf5", *files, status=2)
    assert message.endswith("holds no vocabulary; give --vocab-file")
    run("embed", text, tmp_path / "out.hdf5", *files, "--vocab-file", VOCAB)
    assert len(hdf5_arrays(tmp_path / "out.hdf5")) == 25

    message = refuse("embed", text, tmp_path / "no.hdf5", *MODEL, "--vocab-file", VOCAB)
    assert "reads characters and needs no vocabulary" in message


def test_another_vocabulary_of_the_same_size_is_refused(trained, text, tmp_path):
    words = VOCAB.read_text().splitlines()
    other = write(tmp_path / "other.txt", "".join(f"{word}\n" for word in [*words[:-1], "unheard"]))
    message = refuse("embed", text, tmp_path / "no.hdf5", "--save-dir", trained, "--vocab-file", other)
    assert f"the vocabulary is not the run's, whose copy is {trained / 'vocab.txt'}" in message


@pytest.mark.slow
def test_low_precision_gives_vectors_near_the_exact_ones(text, tmp_path):
    run("embed", text, tmp_path / "out.hdf5", *MODEL, "--precision", "bfloat16")
    found = hdf5_arrays(tmp_path / "out.hdf5")
    differences = [np.abs(found[str(i)] - exact).max() for i, exact in enumerate(golden("char", "stateless"))]
    assert 1e-4 < max(differences) < 2e-2


@pytest.mark.slow
def test_flags_of_the_file_and_of_an_interrupted_command(text, tmp_path, monkeypatch):
    out = tmp_path / "out.hdf5"
    flags = ("--top", "--dtype", "float16", "--compression", "gzip", "--use-sentence-keys")
    flags = (*flags, "--batch-tokens", 30)
    write = hdf5_output.embed_file

    def interrupted(embedder, lines, *arguments, **settings):
        def first_lines():
            yield from islice(lines, 12)
            raise KeyboardInterrupt

        return write(embedder, first_lines(), *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(hdf5_output, "embed_file", interrupted)
        result = invoke("embed", text, out, *MODEL, *flags)
    assert result.exit_code == 1 and "give the same command with --resume" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5.parts", "text.txt"]
    assert "--resume finishes it" in refuse("embed", text, out, *MODEL, *flags)
    other = refuse("embed", text, out, *MODEL, *flags, "--resume", "--precision", "bfloat16")
    assert "model" in other
    said = run("embed", text, out, *MODEL, *flags, "--resume")
    assert re.search(r"24 lines, \d+ of them done before -> .*: \(words, 24\) float16; ", said)
    lines = text.read_text().splitlines()
    with h5py.File(out) as file:
        assert {*file} == {*lines} and file[lines[0]].compression == "gzip"
        for line, expected in zip(lines, golden("char", "stateless"), strict=True):
            assert file[line].dtype == np.float16
            np.testing.assert_allclose(file[line], expected[-1], atol=2e-3)


@pytest.mark.slow
def test_dump_bilm_embeddings(text, tmp_path):
    """bilm-tf's function carries the state from sentence to sentence, as the command does if told to."""
    options, weights = write_model(tmp_path, lstm={"n_layers": 1}, char_cnn={"max_characters_per_token": 50})
    dump_bilm_embeddings(VOCAB, text, options, weights, tmp_path / "a.hdf5")
    flags = ("--options-file", options, "--weight-file", weights, "--stateful", "--batch-size", 1)
    run("embed", text, tmp_path / "b.hdf5", *flags, "--forget-sentences")
    found, wanted = hdf5_arrays(tmp_path / "a.hdf5"), hdf5_arrays(tmp_path / "b.hdf5")
    assert found.keys() == wanted.keys() == {str(i) for i in range(24)}
    for key, vectors in wanted.items():
        np.testing.assert_allclose(found[key], vectors, atol=1e-6)


# --- Parquet ------------------------------------------------------------------------------------------

PARQUET = ("--format", "parquet")


def table_of(path):
    return pytest.importorskip("pyarrow.parquet").read_table(path)


@pytest.fixture
def shorter(text):
    """A text with a blank line."""
    pytest.importorskip("pyarrow")
    lines = text.read_text().splitlines()[:12]
    text.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    return text


def test_only_parquet_needs_pyarrow(text, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "bilm.embedding.parquet_output")
    monkeypatch.delattr("bilm.embedding.parquet_output")
    run("embed", text, tmp_path / "out.hdf5", *MODEL)
    assert refuse("embed", text, tmp_path / "out", *MODEL, *PARQUET).startswith("Parquet needs pyarrow: ")


def test_rows_are_those_of_hdf5(shorter, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_output, "_PART_BYTES", 60_000)  # the vectors of a text have 40,000
    out = tmp_path / "out"
    said = run("embed", *[shorter] * 4, out, *MODEL, *PARQUET, "--dtype", "float32")
    assert said.splitlines()[-1].startswith(f"52 lines, 4 of them blank -> {out}: (")
    about = {"layers": "all", "dtype": "float32", "pooling": None, "lines": 52}
    assert json.loads((out / "_bilm.json").read_text()) == {"written_by": "bilm embed", **about}
    run("embed", shorter, tmp_path / "out.hdf5", *MODEL, "--include-sentence-indices")
    assert sorted(os.listdir(out)) == ["_bilm.json", "part-000000.parquet", "part-000001.parquet"]
    table = table_of(out)
    assert table.column_names == ["file", "line", "sentence", "tokens", "vectors"]
    assert table["line"].to_pylist() == [*range(13)] * 4 and set(table["file"].to_pylist()) == {str(shorter)}
    assert table["sentence"].to_pylist() == shorter.read_text().splitlines() * 4
    assert [len(words) for words in table["tokens"].to_pylist()][5] == 0
    vectors = parquet_output.vectors_of(table["vectors"])
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, row in zip(table["line"].to_pylist(), vectors, strict=True):
            np.testing.assert_allclose(row, file[str(number)], atol=1e-6, rtol=0)
        assert file["sentence_indices"][0] == file["sentence_to_index"][0]


@pytest.mark.slow
def test_state_passes_blank_lines_as_in_hdf5(shorter, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.embedding.chunk_embedder._BATCH_TOKENS", 5)
    shorter.write_text(shorter.read_text() * 3)
    for out in (tmp_path / "out", tmp_path / "out.hdf5"):
        form = [] if out.suffix else [*PARQUET, "--dtype", "float32"]
        run("embed", shorter, out, *form, *MODEL, "--top", "--stateful", "--batch-size", 4)
    found = [parquet_output.vectors_of(table_of(tmp_path / "out")["vectors"])]
    embedder = ElmoEmbedder(MODEL[1], MODEL[3], stateful=True, batch_size=4)
    sentences = [line.split() for line in shorter.read_text().splitlines()]
    found.append(embedder.embed_sentences(sentences, layers="top"))
    expected = hdf5_arrays(tmp_path / "out.hdf5")
    for rows in found:
        for number, row in enumerate(rows):
            np.testing.assert_allclose(row, expected[str(number)], atol=1e-6)


def test_what_stands_there_is_replaced_only_when_it_is_ours(shorter, tmp_path):
    out = tmp_path / "out"
    command = ("embed", shorter, out, *MODEL, *PARQUET, "--top")
    run(*command)
    assert "exists; --overwrite replaces it" in refuse(*command)
    run(*command, "--overwrite", "--compression", "zstd")
    vectors = [*parquet_output.vectors_of(table_of(out)["vectors"])]
    assert {one.dtype for one in vectors} == {np.dtype("float16")} and vectors[0].shape[1:] == (24,)
    (part,) = out.glob("part-*.parquet")
    assert parquet_output.pq.read_metadata(part).row_group(0).column(0).compression == "ZSTD"
    (out / "notes.txt").write_text("mine")
    not_ours = "exists and is not a directory of embeddings that bilm wrote"
    assert not_ours in refuse(*command, "--overwrite")
    (out / "notes.txt").unlink()
    (out / "_bilm.json").write_text("{}")
    assert not_ours in refuse(*command, "--overwrite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]


def test_flipped_bit_in_parquet_is_found(shorter, tmp_path):
    run("embed", shorter, tmp_path / "out", *MODEL, *PARQUET, "--top", "--dtype", "float32")
    (part,) = (tmp_path / "out").glob("*.parquet")
    damaged = bytearray(part.read_bytes())
    (vectors, *_) = parquet_output.vectors_of(table_of(part)["vectors"])
    damaged[damaged.index(vectors.tobytes())] ^= 1
    part.write_bytes(damaged)
    with pytest.raises(OSError, match="CRC"):
        parquet_output.pq.read_table(part, page_checksum_verification=True)


def test_a_full_disk_in_parquet(shorter, tmp_path, monkeypatch):
    full = OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", raising(full))
    message = refuse("embed", shorter, tmp_path / "out", *MODEL, *PARQUET)
    assert "out: cannot be written: " in message and message.endswith("No space left on device")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--all", "--layer", 1), "give one of --all, --top, --average, --layer"),
        (("--concat", "--top"), "--characters, --concat"),
        (("--top", "--with-softmax"), "--with-softmax goes with --concat"),
        (("--resume", "--stateful"), "--resume does not go with --stateful"),
        (("--no-xla", "--backend", "torch"), "--backend torch does not go with --no-xla"),
        (("--format", "parquet", "--resume"), "--resume does not go with --format parquet"),
        (("--save-dir", "x"), "give one model only,"),
    ],
)
def test_flags_that_contradict_each_other(flags, message, text, tmp_path):
    assert message in refuse("embed", text, tmp_path / "out.hdf5", *MODEL, *flags, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_bad_input(text, tmp_path):
    out = tmp_path / "out.hdf5"
    assert "several texts need --format parquet" in refuse("embed", text, text, out, *MODEL, status=2)
    assert "does not go to standard output" in refuse("embed", text, "-", *MODEL)
    assert "is a URL" in refuse("embed", text, "s3://bucket/out", *MODEL, status=2)
    npz = refuse("embed", text, text, tmp_path / "out.npz", "--words", text, *MODEL, status=2)
    assert "an .npz file identifies a line by its number alone" in npz
    twice = refuse("embed", "-", "-", tmp_path / "out.vec", *MODEL, status=2)
    assert twice.endswith("-: standard input can be read only once")
    assert "--cuda-device is 99; TensorFlow finds" in refuse("embed", text, out, *MODEL, "--cuda-device", 99)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_workers_read_files_and_write_parquet(text, tmp_path):
    pytest.importorskip("ray")
    for source, name, message in [
        (text, "out.hdf5", "--format hdf5 does not go with --ray"),
        ("-", "out", "cannot read standard input"),
    ]:
        assert message in refuse("embed", source, tmp_path / name, *MODEL, "--ray", "local", status=2)


@pytest.fixture
def not_begun(monkeypatch):
    """What is refused is refused before TensorFlow is imported."""

    monkeypatch.setattr("bilm.cli.process.import_backend", raising(AssertionError("it was begun")))


@pytest.mark.parametrize("name", ["text.txt", "options.json", "weights.hdf5", "vocab.txt"])
@pytest.mark.usefixtures("not_begun")
def test_what_is_read_is_not_written_over(name, text, tmp_path):
    write_folder(tmp_path, model_files("weights.hdf5"))
    before = snapshot(tmp_path)
    model = ("--options-file", tmp_path / "options.json", "--weight-file", tmp_path / "weights.hdf5")
    model = (*model, "--vocab-file", tmp_path / "vocab.txt")
    for source in (model, ("--model", tmp_path), ("--weight-file", tmp_path / "weights.hdf5")):
        command = ("embed", text, tmp_path / name, *source, "--format", "hdf5", "--overwrite")
        assert refuse(*command) == f"{tmp_path / name}: it is an input and would be lost; give another name"
    assert snapshot(tmp_path) == before


@pytest.mark.usefixtures("not_begun")
def test_a_run_is_not_written_over(text, run_copy):
    message = refuse("embed", text, run_copy / "model.ckpt-2.index", "--save-dir", run_copy, "--overwrite")
    assert message.endswith("is the name of a file of the run; give another name")
    assert "not a directory of embeddings" in refuse("embed", text, text.parent, *MODEL, *PARQUET)


def test_what_is_read_is_not_written_over_in_python(text, tmp_path, monkeypatch):
    weights = write_model(tmp_path, n_words=73, char_cnn=None)[1]
    words = shutil.copy(VOCAB, tmp_path / "words")
    monkeypatch.chdir(tmp_path)
    embedder = ElmoEmbedder("options.json", "weights.hdf5", "words")
    monkeypatch.chdir("/")
    for call in (
        lambda: embedder.embed_file(text, text, overwrite=True),
        lambda: embedder.embed_file(text.open(), text, overwrite=True),
        lambda: embedder.embed_file(text, weights, overwrite=True),
        lambda: embedder.embed_file(text, words, overwrite=True),
        lambda: dump_bilm_embeddings(VOCAB, text, *MODEL[1::2], text),
        lambda: dump_token_embeddings(text, *MODEL[1::2], text),
    ):
        with pytest.raises(DataError, match="it is an input and would be lost"):
            call()
