"""The texts of a job: files by path or URL, and their pieces."""

from __future__ import annotations

import gzip

import pytest

from bilm.errors import DataError
from bilm.ray.jobs import lines_of, pieces, sentences_of, text_files, words_of_a_piece

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one two\n\n three \n")
    (tmp_path / "texts" / "b.txt.gz").write_bytes(gzip.compress(b"four\r\nfive"))
    return tmp_path / "texts"


def test_files_are_found_once_by_path_and_url(texts):
    names = [str(texts / name) for name in ("a.txt", "b.txt.gz")]
    assert text_files([str(texts), names[0]]) == names
    url = texts.as_uri()
    assert text_files([url]) == [f"{url}/a.txt", f"{url}/b.txt.gz"]
    assert text_files([f"{url}/a.txt"]) == [f"{url}/a.txt"]


def test_lines_are_decompressed(texts):
    for file in (str(texts / "b.txt.gz"), f"{texts.as_uri()}/b.txt.gz"):
        assert list(lines_of(file)) == ["four", "five"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///no/such/text", "No such file"),
        ("nothing://a/b", "nothing"),
        ("/no/such/text", "no file matches"),
    ],
)
def test_what_is_missing_is_named(url, message):
    with pytest.raises(DataError, match=f"(?i){message}"):
        text_files([url])


def test_pieces_have_every_line_once(texts):
    found = list(pieces({"item": text_files([str(texts)])}, 5))
    assert [piece.num_rows for piece in found] == [1, 1, 1]
    table = sentences_of(pa.concat_tables(found))
    assert table["line"].to_pylist() == [0, 1, 2, 0, 1]
    assert table["sentence"].to_pylist() == ["one two", "", "three", "four", "five"]
    assert sentences_of(found[0].slice(0, 0)).num_rows == 0


def test_a_bad_line_is_named(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\n")
    for file in (str(tmp_path / "bad.txt"), (tmp_path / "bad.txt").as_uri()):
        with pytest.raises(DataError, match="bad.txt: line 2: not UTF-8"):
            list(lines_of(file))


def test_a_small_text_is_cut_for_all_workers(tmp_path):
    (tmp_path / "text").write_text("a " * 400_000)
    files = [str(tmp_path / "text")]
    assert words_of_a_piece(files, 1, 1 << 16) > words_of_a_piece(files, 4, 1 << 16) >= 1 << 11
