"""`bilm embed --format parquet`: the files, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.embedding import parquet_output
from tests.helpers import GOLDEN, refuse, run

pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("opened_once")

CHAR = GOLDEN / "char"
MODEL = ("--options-file", CHAR / "options.json", "--weight-file", CHAR / "weights.hdf5")
PARQUET = ("--format", "parquet")


@pytest.fixture
def text(tmp_path):
    lines = (CHAR / "heldout.txt").read_text().splitlines()[:12]
    (tmp_path / "text.txt").write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    return tmp_path / "text.txt"


@pytest.mark.parametrize("flags", [(), ("--top",)], ids=["all", "top"])
def test_rows_are_those_of_hdf5(text, tmp_path, flags, monkeypatch):
    monkeypatch.setattr(parquet_output, "_PART_BYTES", 1)
    out = tmp_path / "out"
    said = run("embed", text, text, out, *MODEL, *PARQUET, "--dtype", "float32", *flags)
    assert said.splitlines()[-1].startswith(f"26 lines, 2 of them blank -> {out}: (")
    run("embed", text, tmp_path / "out.hdf5", *MODEL, *flags)
    assert sorted(os.listdir(out)) == ["_bilm.json", "part-000000.parquet", "part-000001.parquet"]
    table = pq.read_table(out)
    assert table.column_names == ["file", "line", "sentence", "tokens", "vectors"]
    assert table["line"].to_pylist() == [*range(13)] * 2 and set(table["file"].to_pylist()) == {str(text)}
    assert table["sentence"].to_pylist() == text.read_text().splitlines() * 2
    assert [len(words) for words in table["tokens"].to_pylist()][5] == 0
    vectors = parquet_output.vectors_of(table["vectors"])
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, row in zip(table["line"].to_pylist(), vectors, strict=True):
            np.testing.assert_allclose(row, file[str(number)], atol=1e-6, rtol=0)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_half_floats_by_default(text, tmp_path, compression):
    run("embed", text, tmp_path / "out", *MODEL, *PARQUET, "--compression", compression)
    vectors = [*parquet_output.vectors_of(pq.read_table(tmp_path / "out")["vectors"])]
    assert {one.dtype for one in vectors} == {np.dtype("float16")} and vectors[0].shape[::2] == (3, 24)


def test_what_stands_there_is_replaced_only_when_it_is_ours(text, tmp_path):
    out = tmp_path / "out"
    command = ("embed", text, out, *MODEL, *PARQUET)
    run(*command)
    assert "exists; --overwrite replaces it" in refuse(*command)
    run(*command, "--overwrite")
    (out / "notes.txt").write_text("mine")
    assert "exists and is not a directory of embeddings that bilm wrote" in refuse(*command, "--overwrite")
    (out / "notes.txt").unlink()
    (out / "_bilm.json").write_text("{}")
    assert "exists and is not a directory of embeddings that bilm wrote" in refuse(*command, "--overwrite")
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["out", "text.txt"]


def test_an_empty_text(tmp_path):
    (tmp_path / "empty").write_text("")
    message = refuse("embed", tmp_path / "empty", tmp_path / "out", *MODEL, *PARQUET)
    assert "the text is empty" in message and not (tmp_path / "out").exists()


def test_a_full_disk(text, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    message = refuse("embed", text, tmp_path / "out", *MODEL, *PARQUET)
    assert message.endswith("out: cannot be written: No space left on device")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]
