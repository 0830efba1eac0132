"""The files of a run that kept no list of them: one of bilm-tf, or of an older version.

Only what can be told from its content does. Diverged text and TensorBoard files cannot.
"""

from __future__ import annotations

from pathlib import Path

from bilm.errors import BilmError, CheckpointError
from bilm.io.json_reader import parse_json
from bilm.options.file import read_options
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.files import Names, RunFiles, sha256
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, CallRecord, read_calls, read_metrics
from bilm.run_directory.state import is_resumable
from bilm.run_directory.vocabulary_copy import RunVocabulary
from bilm.weights.checkpoint_file import CheckpointFile


def files_of(path: Path) -> RunFiles:
    """The files of the run in a directory, by its list or, where it has none, by what they contain."""
    files = RunFiles(path)
    return files if files.is_listed or not path.is_dir() else RunFiles(path, _told_by_content(path))


def _told_by_content(path: Path) -> Names:
    """The files that only a run of bilm or bilm-tf can have written."""
    calls, index = _calls(path), CheckpointIndex(path)
    names: Names = {}
    if calls:
        names[CALLS_FILE] = None
    if _are_metrics(path / METRICS_FILE, bool(calls)):
        names[METRICS_FILE] = None
    if RunVocabulary(path).is_intact():
        names |= {"vocab.txt": sha256((path / "vocab.txt").read_bytes()), "vocab.txt.sha256": None}
    named = index.named_steps()
    if (calls and _is_of_call(path / "options.json", calls[-1])) or (named and _is_of_run(path)):
        names["options.json"] = None
        names |= {"checkpoint": None} if named else {}
        names |= {index.prefix(step).name: None for step in named}
    return names | {index.prefix(step).name: None for step in index.steps() if _is_ours(index.prefix(step))}


def _calls(path: Path) -> tuple[CallRecord, ...]:
    try:
        return read_calls(path / CALLS_FILE)
    except BilmError:
        return ()


def _are_metrics(file: Path, may_be_empty: bool) -> bool:
    try:
        metrics = read_metrics(file)
    except BilmError:
        return False
    return may_be_empty or metrics.last is not None


def _is_of_call(file: Path, call: CallRecord) -> bool:
    try:
        return bool(parse_json(file.read_bytes()) == call.options)
    except (OSError, ValueError):
        return False


def _is_of_run(path: Path) -> bool:
    try:
        return read_options(path / "options.json").options.n_tokens_vocab is not None
    except BilmError:
        return False


def _is_ours(prefix: Path) -> bool:
    try:
        return is_resumable(CheckpointFile(prefix))
    except CheckpointError:
        return False
