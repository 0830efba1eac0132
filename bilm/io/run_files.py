"""Names of the files of a run, of bilm or bilm-tf, and of a corpus."""

import os
import re
from contextlib import suppress
from pathlib import Path

STATE_FILE = "checkpoint"
"""TensorFlow's file that names the newest checkpoint."""
CHECKPOINT = "model.ckpt-"
"""Beginning of the names of a checkpoint's files; the step follows."""
OPTIONS_FILE = "options.json"
VOCABULARY_FILE = "vocab.txt"
DIGEST_FILE = "vocab.txt.sha256"
TEXT_FILE = "text.json"
"""Steps from raw text to sentences, as `bilm prepare` wrote them."""
TRAIN_DIRECTORY = "train"
"""Files of text to train on, in a corpus."""
METRICS_FILE = "metrics.jsonl"
CALLS_FILE = "calls.jsonl"
ARGUMENTS_FILE = "run.toml"
EVENTS_SUFFIX = ".bilm"
"""Suffix of bilm's TensorBoard files, which no other program uses."""
MARK_FILE = "bilm-run.json"
LOCK_FILE = "bilm.lock"
CHANGED = (STATE_FILE, METRICS_FILE, CALLS_FILE, ARGUMENTS_FILE)
"""Files that a later call changes."""

_FILES = (*CHANGED, OPTIONS_FILE, VOCABULARY_FILE, DIGEST_FILE, TEXT_FILE, MARK_FILE, LOCK_FILE)
_NAME = re.compile(
    rf"{'|'.join(map(re.escape, _FILES))}"
    rf"|{re.escape(CHECKPOINT)}[0-9]{{1,18}}\.(index|meta|data-[0-9]{{5}}-of-[0-9]{{5}})"
    rf"|events\.out\.tfevents\..+{re.escape(EVENTS_SUFFIX)}"
)


def is_run_file(name: str) -> bool:
    """Return whether a file is named as a file of a run."""
    return _NAME.fullmatch(name) is not None


def run_files(path: Path) -> list[Path]:
    """Return the files of a directory that are named as files of a run; none without the directory."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(file for file in path.iterdir() if is_run_file(file.name))
    return []


def is_of_run(file: Path) -> bool:
    """Return whether a file is named as a file of a run and beside others of one, which may just begin."""
    beside = (file.with_name(name) for name in (STATE_FILE, MARK_FILE, LOCK_FILE))
    return is_run_file(file.name) and any(map(os.path.isfile, beside))


def own_output(path: str | os.PathLike[str]) -> str | None:
    """Describe a run directory, the prefix of a checkpoint or a corpus, and how to give it; else None."""
    directory, name = os.path.split(path)
    if is_run_file(f"{name}.index") and os.path.isfile(f"{path}.index"):
        step = name.removeprefix(CHECKPOINT)
        return f"a checkpoint, which `bilm test` takes as `model` {directory or '.'} `checkpoint` {step}"
    if any(os.path.isfile(os.path.join(path, name)) for name in (STATE_FILE, MARK_FILE)):
        return f"a run directory, which `bilm test` takes as `model` {path}"
    return corpus_at(path)


def corpus_at(path: str | os.PathLike[str]) -> str | None:
    """Describe a corpus that `bilm prepare` wrote, and how to give it; None for other paths."""
    train = os.path.join(path, TRAIN_DIRECTORY)
    if os.path.isfile(os.path.join(path, TEXT_FILE)) and os.path.isdir(train):
        return f"a corpus, which `bilm train --corpus {path}` takes; its text is in {train} and heldout.txt"
    return None
