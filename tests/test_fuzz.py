"""Damaged files: whatever a reader is given, it succeeds or raises a `BilmError`, soon and in little memory.

Each reader gets some hundred inputs, mutated from small valid files, and as many as ``BILM_FUZZ`` says
where it is set. They are read in a child process with limits, so that a crash of a library, a hang, or a
size in a file that was believed is a failure as any other. An input depends on the name of its reader
and its number only; the one that failed is left where the message says.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import mmap
import os
import resource
import signal
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest
import zstandard

from bilm.checkpoint import RunDirectory
from bilm.corpus import count_corpus
from bilm.embeddings_file import find_parts
from bilm.errors import BilmError
from bilm.metrics import METRICS_FILE, read_calls
from bilm.options import Options
from bilm.options_file import load_inference_options, load_options
from bilm.position import Order, Place, Position, Unfinished
from bilm.run_state import Best, RunState, read_state
from bilm.text import read_lines, read_stream_lines
from bilm.training_plot import X_AXES, _curves, load_curves
from bilm.vocab import UnicodeCharsVocabulary, Vocabulary, load_vocabulary
from bilm.vocab_check import check_vocabulary
from bilm.weights.files import read_hdf5
from bilm.weights.names import dump_names, weight_names
from bilm.weights.token_embeddings import read_token_embeddings
from tests.conftest import TrainedRun
from tests.helpers import TRAIN, VOCAB, call_line, heldout_line, invoke, small_options, train_line
from tests.mutations import mutate_bytes, mutate_hdf5, mutate_json, mutate_text

N_INPUTS = int(os.environ.get("BILM_FUZZ", "200"))
SECONDS = 20  # for an input, which takes milliseconds
BYTES = 1 << 31  # of address space beyond what the process has

Write = Callable[[Random, Path], None]
Read = Callable[[Path], object]


def read_damaged(name: str, write: Write, reads: Sequence[Read], place: Path) -> None:
    """Write and read inputs in a child process; what ends it but success or a `BilmError` is a failure."""
    current = mmap.mmap(-1, 8)  # number of the input, shared with the child
    child = os.fork()
    if not child:
        failed = True
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
            for number in range(N_INPUTS):
                current[:] = number.to_bytes(8, "little")
                write(Random(f"{name} {number}"), place)
                for read in reads:
                    _read_in_time(read, place)
            failed = False
        except BaseException:
            (place / "failure").write_text(traceback.format_exc())
        finally:
            os._exit(failed)
    status = os.waitpid(child, 0)[1]
    if status:
        failure = place / "failure"
        cause = failure.read_text() if failure.exists() else f"killed by {signal.Signals(status & 0x7F).name}"
        pytest.fail(f"{name}, input {int.from_bytes(current, 'little')}, which is in {place}: {cause}")


def _read_in_time(read: Read, place: Path) -> None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)  # which kills the process
    try:
        read(place)
    except BilmError as error:
        assert str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# --- text -------------------------------------------------------------------------------------------


def _damaged_text(name: str, text: str) -> Write:
    def write(random: Random, place: Path) -> None:
        data = text.encode()
        if random.random() < 0.5:
            data = mutate_text(random, text).encode("utf-8", "surrogateescape")
        else:
            data = mutate_bytes(random, data, [gzip.compress(data)])
        (place / name).write_bytes(data)

    return write


def _damaged_corpus(random: Random, place: Path) -> None:
    text = TRAIN.read_bytes()[:2000]
    forms = [gzip.compress(text, mtime=0), lzma.compress(text), zstandard.ZstdCompressor().compress(text)]
    forms += [text, _xz_of_4_gigabytes(text), *(form * 3 for form in forms)]
    (place / "text").write_bytes(mutate_bytes(random, random.choice(forms), forms))


def _xz_of_4_gigabytes(text: bytes) -> bytes:
    """What looks back over 4 GB, or so it says."""
    data = lzma.compress(text)
    header = data[12:16] + b"\x28" + data[17:20]
    return data[:12] + header + zlib.crc32(header).to_bytes(4, "little") + data[24:]


def _read_corpus(place: Path) -> None:
    """As a file and as a stream, which must come to the same."""
    outcomes = []
    with open(place / "text", "rb") as stream:
        for lines in (read_lines(place / "text"), read_stream_lines(stream, "a stream")):
            try:
                outcomes.append(list(lines))
            except BilmError:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]


VOCABULARY_READS: list[Read] = [
    lambda place: check_vocabulary(place / "vocab.txt", [["the", "cat"], []], 20),
    lambda place: Vocabulary(place / "vocab.txt").encode("the cat"),
    lambda place: UnicodeCharsVocabulary(place / "vocab.txt", 20).encode_chars("the cat"),
    lambda place: load_vocabulary(place / "vocab.txt", 20),
]
CORPUS_READS: list[Read] = [
    _read_corpus,
    lambda place: count_corpus([place / "text"], Vocabulary(VOCAB)),
]

# --- JSON -------------------------------------------------------------------------------------------


def _damaged_json(name: str, values: Any) -> Write:
    as_text = _damaged_text(name, json.dumps(values, indent=1))

    def write(random: Random, place: Path) -> None:
        if random.random() < 0.3:
            as_text(random, place)
        else:
            (place / name).write_text(mutate_json(random, values))

    return write


def _damaged_lines(name: str, *lines: dict[str, Any]) -> Write:
    as_text = _damaged_text(name, "".join(f"{json.dumps(line)}\n" for line in lines))

    def write(random: Random, place: Path) -> None:
        if random.random() < 0.3:
            as_text(random, place)
            return
        i = random.randrange(len(lines))
        texts = [mutate_json(random, line) if k == i else json.dumps(line) for k, line in enumerate(lines)]
        (place / name).write_text("\n".join(texts) + "\n")

    return write


def _read_options(place: Path) -> None:
    options = load_options(place / "options.json")
    assert Options.from_json(json.loads(json.dumps(options.to_json()))) == options
    assert len(dump_names(options)) < 100_000


def _read_metrics(place: Path) -> None:
    (curves,) = load_curves([place])
    for x in X_AXES:
        list(_curves(curves.metrics, x))


class _Checkpoint:
    """One that holds a text alone."""

    prefix = "model.ckpt-1"

    def __init__(self, text: str | bytes) -> None:
        self.text = text

    def extra(self, name: str) -> str | bytes:
        return self.text

    def shape(self, name: str) -> tuple[int, ...]:
        return ()


def _read_state(place: Path) -> None:
    state = read_state(_Checkpoint((place / "state").read_bytes()))
    assert state is not None and isinstance(state.step, int)
    assert read_state(_Checkpoint(json.dumps(state._to_json()))) is not None


ROWS = [None, Unfinished("the cat sat", 2)]
STATE = RunState(
    {"seed": 7},
    n_done=3,
    n_tokens=9,
    positions=[Position(Order(2), Place(1, 0, 1, 2, 3, 4), ROWS)],
    best=Best(2, 9.0),
)

# --- HDF5 -------------------------------------------------------------------------------------------


def _damaged_hdf5(name: str, content: Callable[[h5py.File], None], of_bytes: bool) -> Write:
    files = []
    for version in ("earliest", "latest"):
        with h5py.File(buffer := io.BytesIO(), "w", libver=version) as file:
            content(file)
        files.append(buffer.getvalue())

    def write(random: Random, place: Path) -> None:
        data = random.choice(files)
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(mutate_bytes(random, data, files) if of_bytes else data)
        if not of_bytes:
            mutate_hdf5(random, path)

    return write


OPTIONS = Options.from_json(small_options())
SETTINGS = {"layers": "all", "weights": "0123"}


def _weights(file: h5py.File) -> None:
    for i, name in enumerate(weight_names(OPTIONS)):
        file.create_dataset(name.hdf5, data=np.ones(name.shape, "f4"), compression=None if i % 4 else "gzip")


def _embeddings(file: h5py.File) -> None:
    for i in range(3):
        file.create_dataset(str(i), data=np.ones((3, 4, 8), "f4"), compression="gzip")
    file.attrs.update(
        {"bilm_settings": np.bytes_(json.dumps(SETTINGS)), "bilm_text": np.bytes_("0" * 64), "bilm_lines": 3}
    )


def _vectors(file: h5py.File) -> None:
    file["embedding"] = np.ones((5, 4), "f4")


HDF5 = {
    "weights": (
        ("weights.hdf5", _weights),
        [
            lambda place: read_hdf5(place / "weights.hdf5", dump_names(OPTIONS)),
            lambda place: invoke("info", "--arrays", place / "weights.hdf5"),
            lambda place: invoke("info", "--json", place / "weights.hdf5"),
        ],
    ),
    "vectors": (
        ("vectors.hdf5", _vectors),
        [lambda place: read_token_embeddings(place / "vectors.hdf5", 4)],
    ),
    "embeddings": (
        ("out.hdf5.parts/part-000000000000.hdf5", _embeddings),
        [lambda place: find_parts(place / "out.hdf5", SETTINGS)],
    ),
}

READERS: dict[str, tuple[Write, list[Read]]] = {
    "vocabulary": (_damaged_text("vocab.txt", VOCAB.read_text()), VOCABULARY_READS),
    "corpus": (_damaged_corpus, CORPUS_READS),
    "options": (
        _damaged_json("options.json", small_options(n_tokens_vocab=73)),
        [_read_options, lambda place: load_inference_options(place / "options.json", [])],
    ),
    "metrics": (
        _damaged_lines(
            METRICS_FILE, *(train_line(i, tokens=9 * i) for i in range(3)), heldout_line(3, best=True)
        ),
        [_read_metrics],
    ),
    "calls": (_damaged_lines("calls.jsonl", call_line()), [lambda place: read_calls(place / "calls.jsonl")]),
    "state": (_damaged_json("state", STATE._to_json()), [_read_state]),
} | {
    f"{name}, {'bytes' if of_bytes else 'content'}": (_damaged_hdf5(*what, of_bytes=of_bytes), reads)
    for name, (what, reads) in HDF5.items()
    for of_bytes in (True, False)
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path):
    read_damaged(name, *READERS[name], tmp_path)


# --- run directories --------------------------------------------------------------------------------


def _damaged_run(run: Path) -> Write:
    """One of its files is damaged, as what it is or as bytes."""

    contents = {file.name: file.read_bytes() for file in sorted(run.iterdir()) if "tfevents" not in file.name}
    contents[METRICS_FILE] += json.dumps(heldout_line(2, best=True)).encode() + b"\n"

    def write(random: Random, place: Path) -> None:
        (place / "run").mkdir(exist_ok=True)
        for name, data in contents.items():
            if not (place / "run" / name).exists() or (place / "run" / name).read_bytes() != data:
                (place / "run" / name).write_bytes(data)
        file = place / "run" / random.choice(list(contents))
        if file.suffix == ".json" and random.random() < 0.7:
            file.write_text(mutate_json(random, json.loads(file.read_text())))
        elif file.suffix == ".jsonl" and random.random() < 0.7:
            lines = file.read_text().splitlines()
            lines.append(mutate_json(random, json.loads(lines[-1])))
            file.write_text("\n".join(lines) + "\n")
        elif ".ckpt" not in file.name and random.random() < 0.7:
            file.write_text(mutate_text(random, file.read_text()), errors="surrogateescape")
        else:
            file.write_bytes(mutate_bytes(random, file.read_bytes(), list(contents.values())))

    return write


def _read_run(place: Path) -> None:
    run = RunDirectory.open(place / "run")
    checkpoint = run.latest()
    checkpoint.weights(run.names)
    checkpoint.accumulators(run.names)
    assert checkpoint.step() >= 0
    run.check_vocabulary(load_vocabulary(run.vocabulary_file))


def _draw(place: Path) -> None:
    if zlib.crc32((place / "run" / METRICS_FILE).read_bytes()) % 20 == 0:
        invoke("plot", place / "run", "--outfile", place / "plot.png")


RUN_READS: list[Read] = [
    _read_run,
    lambda place: invoke("info", place / "run"),
    lambda place: invoke("info", "--json", place / "run"),
    _draw,
]


def test_damaged_runs(trained: TrainedRun, tmp_path: Path):
    read_damaged("run", _damaged_run(trained.path), RUN_READS, tmp_path)
