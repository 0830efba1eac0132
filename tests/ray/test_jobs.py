"""The jobs: texts and their pieces, the workers without Ray, and what the jobs write and print on Ray."""

import contextlib
import gzip
import os
import signal
import threading
import time
from unittest.mock import create_autospec

import numpy as np
import pytest

from bilm.backend import settings
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BilmError, DataError
from bilm.run_directory.model_source import ModelArguments
from tests.helpers import CHAR, FILES, MODEL, VOCAB, printed, refuse, run, snapshot
from tests.models.test_bidirectional_lm import write_model
from tests.ray.local import workers

pytest.importorskip("ray.data")
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import ray.data  # noqa: E402

from bilm.embedding.parquet_output import vectors_of  # noqa: E402
from bilm.ray import Cluster, Embed, Score, jobs  # noqa: E402
from bilm.ray.cluster import Workers  # noqa: E402

RUN = ("--save-dir", CHAR / "final", "--vocab-file", VOCAB)
RAY = ("--ray", "local", "--ray-workers", "1")  # the one of `cluster`
LINES = ["the river and the sea", "", "Time flies"]

# --- texts --------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one two\n\n three \n")
    (tmp_path / "texts" / "b.txt.gz").write_bytes(gzip.compress(b"four\r\nfive"))
    return tmp_path / "texts"


def test_files_are_found_once(texts):
    names = [str(texts / name) for name in ("a.txt", "b.txt.gz")]
    assert jobs.text_files([str(texts), names[0]]) == names
    url = texts.as_uri()
    urls = [f"{url}/a.txt", f"{url}/b.txt.gz"]
    assert jobs.text_files([url, urls[0]]) == urls
    for file in (names[1], urls[1]):
        assert list(jobs.lines_of(file)) == ["four", "five"]
    (texts / "b.txt.gz").rename(texts / "b #1%.gz")
    assert list(jobs.lines_of(jobs.text_files([url])[1])) == ["four", "five"]
    for url in ("file:///no/such/text", "nothing://a/b", "/no/such/text"):
        with pytest.raises(DataError, match="(?i)no such file|nothing|no file matches"):
            jobs.text_files([url])


def test_pieces_have_every_line_once(texts):
    found = list(jobs.pieces({"item": jobs.text_files([str(texts)])}, 5))
    assert [piece.num_rows for piece in found] == [1, 1, 1]
    table = jobs.sentences_of(pa.concat_tables(found))
    assert table["line"].to_pylist() == [0, 1, 2, 0, 1]
    assert table["sentence"].to_pylist() == ["one two", "", "three", "four", "five"]
    assert jobs.sentences_of(found[0].slice(0, 0)).num_rows == 0
    lists = pa.table({"text": [["a", "b"], ["c"]]})  # a user's, whose rows are no text
    assert jobs.sentences_of(lists) == lists


# --- a directory at a URL -----------------------------------------------------------------------------


@pytest.fixture
def old_parts(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_bilm.json").write_text('{"written_by": "bilm embed"}')
    (tmp_path / "out" / "part-000000.parquet").write_text("old")
    return tmp_path / "out"


def test_url_replaces_old_parts_last(old_parts):
    before, url = snapshot(old_parts), old_parts.as_uri()
    for error in (OSError("No space left"), KeyboardInterrupt()):
        with pytest.raises((DataError, KeyboardInterrupt)), jobs.output_directory(url, True, "id"):
            (old_parts / "part-000000-id.parquet").write_text("new")
            raise error
        assert snapshot(old_parts) == before
    with jobs.output_directory(url, True, "id"):
        (old_parts / "part-000000-id.parquet").write_text("new")
    assert {*snapshot(old_parts)} == {"_bilm.json", "part-000000-id.parquet"}


# --- workers without Ray ------------------------------------------------------------------------------


FORMS = [({"line": np.array(LINES)}, {}), (pa.table({"line": LINES}), {"layers": "top", "pooling": "mean"})]


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "form"), FORMS, ids=["arrays", "table, pooled"])
def test_vectors_match_the_embedder(batch, form, tmp_path):
    files = write_model(tmp_path, lstm={"n_layers": 1}, bidirectional=False)
    model = ModelArguments(options_file=files[0], weight_file=files[1])
    embed = Embed(model, column="line", dtype="float32", **form)
    table = embed(batch)
    assert table.column_names == ["line", "tokens", "vectors"]
    assert table["tokens"].to_pylist() == [line.split() for line in LINES]
    expected = ElmoEmbedder(*files).embed_sentences(map(str.split, LINES), **form)
    for vectors, others in zip(vectors_of(table["vectors"]), expected, strict=True):
        np.testing.assert_allclose(vectors, others, atol=1e-6, rtol=0)
    empty = embed(pa.table({"line": pa.array([], pa.string())}))
    assert empty.num_rows == 0 and empty.schema == table.schema


def test_call_raises_wrong_input(tmp_path):
    embed = Embed(ModelArguments(options_file=FILES[0], weight_file=FILES[1]), column="line")
    for batch, message in (
        ({"text": np.array(["a"])}, "no column 'line', only text"),
        ({"line": np.array([1])}, "row 0 of a batch is int, not text"),
        ({"line": np.array(["a"]), "vectors": np.array([1])}, "there is a column 'vectors', which would"),
    ):
        with pytest.raises(DataError, match=message):
            embed(batch)
    files = ModelArguments(options_file=FILES[0], weight_file=FILES[1])
    for wrong, message in (
        (Embed(tmp_path / "none"), "none"),
        (Embed(files, VOCAB), "needs no vocabulary"),
        (Embed(files, batch_size="3"), "batch_size is '3'"),
    ):
        with pytest.raises(BilmError, match=message):
            wrong({"text": np.array(["a"])})


def test_scores_of_a_batch(trained):
    table = Score(trained, column="line")({"line": np.array(["", "the unseenword", ""])})
    assert table["known"].to_pylist() == [None, [True, False], None]
    assert [scores and len(scores) for scores in table["forward"].to_pylist()] == [None, 3, None]
    assert table["backward"].to_pylist() == [None] * 3


def test_scores_keep_their_line_and_direction(monkeypatch):
    row = {"file": "a", "line": 3, "tokens": ["the"], "known": [True], "forward": [-1, -2], "backward": None}
    monkeypatch.setattr(jobs, "_results", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(jobs, "_rows", lambda *_: [row | {"line": 2, "tokens": []}, row])
    ((file, line, score),) = jobs.score(["a"], ModelArguments(model="m"))
    assert (file, line, score.forward.tolist(), score.backward) == ("a", 3, [-1, -2], None)


def test_score_takes_one_file_and_float32(texts):
    message = refuse("score", texts, *RUN, *RAY)
    assert message == f"{texts}: is 2 files, whose lines have the same numbers; give one"
    message = refuse("score", VOCAB, *RUN, *RAY, "--precision", "bfloat16", status=2)
    assert message == "--ray does not go with --precision bfloat16"


def test_workers_get_absolute_paths(texts, tmp_path, monkeypatch):
    """And a checkpoint's name as it is, and whether XLA is on."""
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    given, dataset = {}, create_autospec(ray.data.Dataset, instance=True)
    dataset.map_batches.side_effect = lambda worker, **settings: given.update(settings)
    monkeypatch.setattr(jobs, "_read_pieces", lambda *_: dataset)
    place = create_autospec(Cluster, instance=True)
    place.connected.return_value = contextlib.nullcontext(Workers(1, 2, 0.0, 2))
    monkeypatch.chdir(tmp_path)
    run_dir = ModelArguments(save_dir="run", checkpoint="best")
    monkeypatch.setattr(settings, "xla_is_on", False)
    with jobs._results(["texts"], Score, run_dir, "vocab.txt", place):
        model, vocabulary = given["fn_constructor_args"]
    assert model == ModelArguments(save_dir=tmp_path / "run", checkpoint="best")
    assert vocabulary == str(tmp_path / "vocab.txt") and given["fn_constructor_kwargs"]["n_threads"] == 2
    with jobs._results(["texts"], Score, ModelArguments(save_dir="run", checkpoint="run/m-1"), None, place):
        assert given["fn_constructor_args"][0].checkpoint == tmp_path / "run" / "m-1"
    assert given["runtime_env"]["env_vars"] == {
        **{"KERAS_BACKEND": "tensorflow", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        **{"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_TF32_OVERRIDE": "0"},
    }
    place.connected.return_value = contextlib.nullcontext(Workers(2, 1, 0.5, 0.99))
    with jobs._results(["texts"], Score, run_dir, None, place):
        assert "CUDA_VISIBLE_DEVICES" not in given["runtime_env"]["env_vars"]
    assert (given["batch_size"], given["num_gpus"], given["num_cpus"]) == (1, 0.5, 0.99)
    assert given["compute"].max_size == 2
    monkeypatch.setattr(settings, "xla_is_on", True)
    threads = []
    monkeypatch.setattr(settings, "use_threads", threads.append)
    Score(model, **given["fn_constructor_kwargs"])
    assert not settings.xla_is_on and threads == [1]


# --- on Ray, whose workers load TensorFlow ------------------------------------------------------------


@pytest.fixture(scope="module")
def long_and_short(tmp_path_factory):
    """Two texts: one of several pieces with blank lines, and a short one."""
    folder = tmp_path_factory.mktemp("texts")
    lines = (CHAR / "train.txt").read_text().splitlines()
    lines[3:3] = ["", " "]
    while sum(map(len, lines)) < 60_000:
        lines += lines
    (folder / "b.txt").write_text("\n".join(lines) + "\n")
    (folder / "a.txt").write_text("Time flies\n\nHello\n")
    return [folder / "b.txt", folder / "a.txt"]


def kill_a_worker():
    """Kill the process with the model as soon as there is one."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        time.sleep(0.5)
        if found := workers("ray::MapWorker"):
            os.kill(found.pop(), signal.SIGKILL)
            return


@pytest.mark.slow
def test_killed_worker_is_replaced(cluster, long_and_short, tmp_path):
    out = tmp_path / "out"
    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    said = run("embed", *long_and_short, out, *MODEL, *RAY, "--dtype", "float32")
    n_lines = [len(text.read_text().splitlines()) for text in long_and_short]
    assert said.splitlines()[-1].startswith(f"{sum(n_lines):,} lines -> {out}: float32")
    run("embed", *long_and_short, tmp_path / "one", *MODEL, "--format", "parquet", "--dtype", "float32")
    table, expected = pq.read_table(out), pq.read_table(tmp_path / "one")
    assert table.schema.equals(expected.schema)
    for column in ("file", "line", "sentence", "tokens"):
        assert table[column].to_pylist() == expected[column].to_pylist(), column
    for one, other in zip(vectors_of(table["vectors"]), vectors_of(expected["vectors"]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)
    parts = sorted(path.name for path in out.glob("*.parquet"))
    assert len(parts) > 1 and parts == [f"part-{number:06}.parquet" for number in range(len(parts))]
    assert not killer.is_alive()
    assert "exists; --overwrite replaces it" in refuse("embed", *long_and_short, out, *MODEL, *RAY)


@pytest.mark.slow
def test_url_output_is_written(cluster, old_parts, long_and_short):
    command = ("embed", long_and_short[1], old_parts.as_uri(), *MODEL, *RAY)
    assert "exists; --overwrite replaces it" in refuse(*command)
    run(*command, "--overwrite")
    assert pq.read_table(old_parts)["sentence"].to_pylist() == ["Time flies", "", "Hello"]
    assert not (old_parts / "part-000000.parquet").exists()
    run(*command, "--overwrite", "--top", "--pooling", "mean", "--compression", "zstd")
    table = pq.read_table(old_parts)
    assert {vectors.shape for vectors in vectors_of(table["vectors"])} == {(24,)}
    parts = [pq.read_metadata(part) for part in old_parts.glob("*.parquet")]
    assert {part.row_group(0).column(0).compression for part in parts} == {"ZSTD"}


@pytest.mark.slow
def test_errors_of_workers(cluster, long_and_short, tmp_path):
    bad, out = tmp_path / "bad.txt", tmp_path / "out"
    bad.write_bytes(b"good\n\xff\n")
    message = refuse("embed", long_and_short[1], bad, out, *MODEL, *RAY)
    assert message.startswith(f"{bad}: line 2: not UTF-8 (byte 0xff") and "\n" not in message
    message = refuse("embed", long_and_short[1], out, "--model", bad, *RAY)
    assert str(bad) in message and "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


@pytest.mark.slow
def test_scores(cluster, long_and_short):
    expected = printed("score", long_and_short[1], *RUN).splitlines()
    found = printed("score", long_and_short[1], *RUN, *RAY).splitlines()
    assert len(found) == len(expected) == 3 and found[0] == expected[0]
    one, other = (np.array([line.split("\t") for line in lines[1:]]) for lines in (found, expected))
    np.testing.assert_array_equal(np.delete(one, [3, 4], 1), np.delete(other, [3, 4], 1))
    np.testing.assert_allclose(one[:, 3:5].astype(float), other[:, 3:5].astype(float), atol=2e-5)


@pytest.mark.slow
def test_a_vocabulary(cluster, long_and_short, tmp_path):
    flags = ("--train-prefix", *long_and_short, "--min-count", 2)
    run("vocab", "build", *flags, "--outfile", tmp_path / "ray.txt", "--ray", "local")
    run("vocab", "build", *flags, "--outfile", tmp_path / "one.txt")
    assert (tmp_path / "ray.txt").read_text() == (tmp_path / "one.txt").read_text()
