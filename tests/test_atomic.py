"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from bilm.atomic import replacing


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(failure):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise failure
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_while_taking_the_name_leaves_nothing(tmp_path):
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError):
        with replacing(tmp_path / "directory") as temporary:
            temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


def test_a_missing_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        with replacing(tmp_path / "none" / "file"):
            pass


def test_permissions_are_those_of_any_new_file(tmp_path):
    mask = os.umask(0o027)
    try:
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
