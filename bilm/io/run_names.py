"""The names of the files of a run, ours and bilm-tf's."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_PATTERNS = (
    *("checkpoint", "model.ckpt-*", "vocab.txt", "vocab.txt.sha256", "options.json"),
    *("metrics.jsonl", "calls.jsonl", "events.out.tfevents.*", "diverged-*.txt"),
    *("bilm-files.txt", "bilm.lock"),
)


def is_run_file(name: str) -> bool:
    """Whether a file of this name in a run directory belongs to the run."""
    return any(fnmatchcase(name, pattern) for pattern in _PATTERNS)


def run_files(path: Path) -> Iterator[Path]:
    """The files in a directory that belong to a run, without others."""
    for pattern in _PATTERNS:
        yield from path.glob(pattern)
