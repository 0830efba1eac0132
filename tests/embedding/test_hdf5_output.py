"""The HDF5 file of a text, without a model: its datasets, what an interruption leaves, what is refused."""

import json
import os
import shutil
import time
import types
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.embedding.chunk_embedder import ChunkEmbedder
from bilm.embedding.hdf5_output import FileFormat, check_embeddings, embed_file
from bilm.errors import ArgumentError, DataError
from bilm.io import atomic
from tests.helpers import assert_same_arrays, hdf5_arrays, snapshot

LINES = [f"line {number} of the text" for number in range(24)]


class StubEmbedder(ChunkEmbedder):
    """Vectors that tell words apart; five sentences are a chunk."""

    n_layers, dim, stateful, n_at_once, chunk_size = 3, 4, False, 1, (0, 5)

    def __init__(self, fingerprint="model"):
        self._fingerprint = fingerprint

    @property
    def fingerprint(self):
        return self._fingerprint

    def embed_chunk(self, sentences, form):
        ones = np.ones((3, 1, 4) if form.layers == "all" else (1, 4), form.dtype)
        numbers = [np.array([sum(word.encode()) for word in words], form.dtype) for words in sentences]
        return [ones * of_sentence[:, None] for of_sentence in numbers]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.hdf5"


def embed(out, lines=LINES, *, embedder=None, overwrite=False, resume=False, **form):
    form = FileFormat(**form)
    return embed_file(embedder or StubEmbedder(), lines, out, form, overwrite=overwrite, resume=resume)


def interrupted(lines, error=KeyboardInterrupt):
    yield from lines
    raise error


def interrupt(out, n_lines=10, **settings):
    with pytest.raises(KeyboardInterrupt):
        embed(out, interrupted(LINES[:n_lines]), **settings)


def parts(out):
    return sorted(out.with_name(f"{out.name}.parts").glob("*"))


# --- datasets -------------------------------------------------------------------------------------------


def test_file_is_the_same_wherever_parts_end(out, monkeypatch):
    embed(out)
    before = out.read_bytes()
    monkeypatch.setattr("bilm.embedding.hdf5_output._PART_BYTES", 1)
    embed(out, overwrite=True)
    assert out.read_bytes() == before


def test_lines_keep_numbers(out, tmp_path):
    report = embed(out, ["a b", "", "  ", "a b", " c "])
    assert (report.n_lines, report.n_blank, report.n_tokens, report.n_kept) == (5, 2, 5, 0)
    datasets = hdf5_arrays(out)
    assert {key: datasets[key].shape[1] for key in "01234"} == {"0": 2, "1": 0, "2": 0, "3": 2, "4": 1}
    assert json.loads(*datasets["sentence_to_index"]) == {"a b": "3", "c": "4"}
    np.testing.assert_array_equal(datasets["0"], datasets["3"])
    assert [path.name for path in tmp_path.iterdir()] == ["out.hdf5"]


def test_sentence_keys_name_datasets(out):
    lines = ["a b", "and/or c", "", "a b", "nul\0 d", ".", "and\N{DIVISION SLASH}or c"]
    report = embed(out, lines, use_sentence_keys=True)
    assert report.n_tokens == 9  # the repeated sentence is not embedded again
    assert hdf5_arrays(out).keys() == {
        *("a b", "and\N{DIVISION SLASH}or c", "nul\N{SYMBOL FOR NULL} d", "\N{ONE DOT LEADER}"),
        "and\N{DIVISION SLASH}or c\N{DIVISION SLASH}",
    }


def test_file_has_form(out):
    embed(out, forget_sentences=True)
    assert hdf5_arrays(out).keys() == {str(i) for i in range(24)}
    embed(out, overwrite=True, include_sentence_indices=True)
    assert hdf5_arrays(out)["sentence_indices"] == hdf5_arrays(out)["sentence_to_index"]
    embed(out, ["a", ""], overwrite=True, layers="top", dtype="float16", compression="gzip")
    with h5py.File(out) as file:
        assert file["0"].dtype == np.float16 and file["0"].compression == "gzip"
        assert file["0"].shape == (1, 4) and file["1"].shape == (0, 4)


# --- interrupted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [{}, {"use_sentence_keys": True}, {"layers": "top", "compression": "gzip"}],
    ids=["numbers", "sentences", "compressed"],
)
def test_resume_finishes_what_was_interrupted(form, out, tmp_path):
    lines = ["a b", "", "a b", *LINES]
    with pytest.raises(KeyboardInterrupt):
        embed(out, interrupted(lines[:11]), **form)
    with pytest.raises(KeyboardInterrupt):
        embed(out, interrupted(lines[:16]), resume=True, **form)
    assert [path.name for path in parts(out)] == [f"part-{start:012}.hdf5" for start in (0, 10)]
    assert not out.exists()
    parts_directory = parts(out)[0].parent
    (parts_directory / "part-unfinished.tmp").write_text("of a process that was killed")
    report = embed(out, lines, resume=True, **form)
    assert (report.n_lines, report.n_blank, report.n_kept) == (27, 1, 15)
    embed(tmp_path / "whole.hdf5", lines, **form)
    assert_same_arrays(hdf5_arrays(out), hdf5_arrays(tmp_path / "whole.hdf5"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5", "whole.hdf5"]
    before = snapshot(tmp_path)
    parts_directory.mkdir()
    assert embed(out, lines, resume=True, **form).n_kept == 27
    assert snapshot(tmp_path) == before


def test_resume_refuses_a_missing_part(out):
    interrupt(out)
    interrupt(out, 20, resume=True)
    for part in parts(out):
        kept = part.read_bytes()
        part.unlink()
        if parts(out)[-1] > part:
            with pytest.raises(DataError, match="is damaged, or the part before it is missing"):
                embed(out, resume=True)
        part.write_bytes(kept)
    assert embed(out, resume=True).n_kept == 20 and len(hdf5_arrays(out)) == 25


@pytest.mark.parametrize("n_removed", [0, 1, 2])
def test_kill_while_parts_are_removed_keeps_the_output(n_removed, out, monkeypatch):
    interrupt(out)
    interrupt(out, 20, resume=True)
    remove, removed = Path.unlink, []

    def remove_some(path, **settings):
        if path.suffix == ".hdf5" and path.parent.name == "out.hdf5.parts":
            if len(removed) == n_removed:
                raise KeyboardInterrupt
            removed.append(path)
        remove(path, **settings)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", remove_some)
        embed(out, resume=True)
    assert len(hdf5_arrays(out)) == 25 and len(parts(out)) == 3 - n_removed
    embed(out, [*LINES, "one more"], resume=True)
    assert len(hdf5_arrays(out)) == 26 and not parts(out)


def test_resume_takes_longer_text(out, tmp_path):
    embed(out, LINES[:7], resume=True)  # nothing is there
    interrupt(out, 18, resume=True)
    (part,) = parts(out)
    content = part.read_bytes()
    assert part.name == "part-000000000007.hdf5"
    assert embed(out, resume=True).n_kept == 17
    embed(tmp_path / "whole.hdf5")
    assert_same_arrays(hdf5_arrays(out), hdf5_arrays(tmp_path / "whole.hdf5"))
    part.parent.mkdir()
    part.write_bytes(content)  # as a kill before its removal leaves it
    assert embed(out, resume=True).n_kept == 24 and not parts(out)


def test_resume_puts_together_what_was_all_embedded(out):
    interrupt(out, 20)
    assert embed(out, LINES[:20], resume=True).n_kept == 20
    assert len(hdf5_arrays(out)) == 21 and not parts(out)


def test_overwriting_leaves_no_earlier_parts(out):
    interrupt(out)
    interrupt(out, 20, resume=True)
    interrupt(out, 5, overwrite=True, layers="top")
    assert embed(out, resume=True, layers="top").n_kept == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "top"}, "written with other settings: layers .*all.* to .*top"),
        ({"embedder": StubEmbedder("other")}, "model .*model.* to .*other"),
        ({"lines": ["another", *LINES]}, "belongs to another text"),
        ({"lines": LINES[:3]}, "belongs to another text"),
        ({"lines": [LINES[0] + LINES[1][:1], LINES[1][1:], *LINES[2:]]}, "belongs to another text"),
    ],
    ids=["form", "model", "text", "shorter text", "other line ends"],
)
def test_resume_refuses_other_text(changes, message, out):
    interrupt(out)
    with pytest.raises(DataError, match=message):
        embed(out, resume=True, **changes)
    embed(out, overwrite=True, **changes)
    assert out.exists() and not parts(out)


def test_parts_are_synced_and_ten_seconds_apart(out, monkeypatch):
    """Each chunk takes six."""
    seconds, synced = [0.0], []

    def count(report):
        seconds[0] += 6.0

    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(atomic, "sync", lambda path: synced.append((path.name, len(parts(out)))))
    with pytest.raises(KeyboardInterrupt):
        embed_file(StubEmbedder(), interrupted(LINES), out, FileFormat(), callback=count)
    assert [path.name for path in parts(out)] == [f"part-{start:012}.hdf5" for start in (0, 10)]
    assert synced == [("part-unfinished.tmp", n) for n in (1, 2)]  # before they get their names


def test_full_disk_keeps_parts(out, monkeypatch):
    """What was embedded before is kept."""
    interrupt(out)
    create = h5py.File.create_dataset

    def fail(file, name, *arguments, **settings):
        if name == "16":
            raise OSError("Can't write data (errno = 28, error message = 'No space left on device', buf = 1)")
        return create(file, name, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(h5py.File, "create_dataset", fail)
        with pytest.raises(DataError) as error:
            embed(out, resume=True)
    assert str(error.value) == f"{out}: cannot be written: No space left on device"
    assert [path.name for path in parts(out)] == ["part-000000000000.hdf5"]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=0))
        with pytest.raises(DataError, match="No space left on device"):
            embed(out, resume=True)
    assert embed(out, resume=True).n_kept == 10 and len(hdf5_arrays(out)) == 25
    with h5py.File(out):  # as in a notebook
        assert embed(out, resume=True).n_kept == 24


# --- what is refused ------------------------------------------------------------------------------------


def test_an_output_that_exists(out, tmp_path):
    with pytest.raises(DataError, match="no sentences to embed: the text is empty"):
        embed(out, [])
    assert not list(tmp_path.iterdir())
    out.write_text("mine")
    with pytest.raises(DataError, match="exists; overwrite=True replaces it, resume=True continues it"):
        embed(out)
    assert out.read_text() == "mine"
    with pytest.raises(ArgumentError, match="`overwrite` and `resume` exclude each other"):
        embed(out, overwrite=True, resume=True)
    out.unlink()
    h5py.File(out, "w").close()
    with pytest.raises(DataError, match="was not written by bilm embed"):
        embed(out, resume=True)
    out.unlink()
    interrupt(out)
    with pytest.raises(DataError, match=r"holds an unfinished file; resume=True finishes it, overwrite"):
        embed(out)
    (part,) = parts(out)
    for name, value in (
        ("bilm_settings", np.bytes_("[]")),
        ("bilm_text", "0" * 64),
        ("bilm_text", h5py.Empty("S1")),
    ):
        with h5py.File(part, "a") as file:
            file.attrs[name] = value
        with pytest.raises(DataError):
            embed(out, resume=True)
    embed(out, overwrite=True)
    assert len(hdf5_arrays(out)) == 25 and not parts(out)


def test_a_second_writer_is_refused(out):
    """And finishes what the first leaves."""

    def lines():
        yield from LINES[:10]
        message = f"out.hdf5: is being written by host .*, process {os.getpid()}; wait for it to finish"
        for settings in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(DataError, match=message):
                embed(out, **settings)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(out, lines())
    assert embed(out, resume=True).n_kept == 10


def test_a_writer_that_was_checked_before_the_other_finished_is_refused(out):
    check_embeddings(out, overwrite=False, resume=False)
    embed(out)
    with pytest.raises(DataError, match="exists; overwrite=True replaces it"):
        embed(out, ["another text"])
    assert len(hdf5_arrays(out)) == 25


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_parts_directory_of_another_user_is_not_taken_over(out):
    directory = out.with_name("out.hdf5.parts")
    directory.mkdir()
    os.chown(directory, 12345, -1)
    with pytest.raises(DataError, match=f"{directory}: belongs to another user"):
        embed(out, resume=True)


def test_files_of_the_users_stay(out):
    directory = out.with_name("out.hdf5.parts")
    directory.mkdir()
    for name in ("notes.txt", "part-1.hdf5", "mine.tmp"):
        (directory / name).write_text("mine")
    before = snapshot(directory)
    interrupt(out)
    embed(out, resume=True)
    assert snapshot(directory) == before
