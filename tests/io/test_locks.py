from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.io import atomic as locks
from bilm.io.atomic import FileLock, HeldError


def test_a_second_lock_is_refused_and_names_who_has_it(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"):
        with pytest.raises(HeldError, match=f"host .*, process {os.getpid()}$"):
            FileLock(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
    FileLock(tmp_path / "lock").release()


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from bilm.io.atomic import FileLock; "
    code += "lock = FileLock(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=False)
    assert (tmp_path / "lock").exists()
    with FileLock(tmp_path / "lock") as lock:
        assert lock.is_supported


def test_a_lock_file_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").write_text("another's")
    lock.release()
    assert (tmp_path / "lock").read_text() == "another's"


def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    assert not FileLock(tmp_path / "lock").is_supported
    assert fcntl.flock is refuse


def test_a_full_disk_keeps_nobody_from_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(locks.os, "pwrite", full)
    with FileLock(tmp_path / "lock"):
        with pytest.raises(HeldError, match="held by another process"):
            FileLock(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
