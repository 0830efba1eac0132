"""The jobs on Ray itself: what they write and print, a worker that is killed, errors of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import GOLDEN, VOCAB, refuse, run
from tests.ray.local import local_ray

pq = pytest.importorskip("pyarrow.parquet")

from bilm.embedding.parquet_output import vectors_of  # noqa: E402

pytestmark = pytest.mark.slow  # starts Ray, whose workers load TensorFlow

CHAR = GOLDEN / "char"
MODEL = ("--options-file", CHAR / "options.json", "--weight-file", CHAR / "weights.hdf5")
RUN = ("--save-dir", CHAR / "final", "--vocab-file", VOCAB)
RAY = ("--ray", "local", "--ray-workers", "1")  # the instance of the fixture, which is there already


@pytest.fixture(scope="module", autouse=True)
def _ray():
    pytest.importorskip("ray.data")
    with local_ray():
        yield


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Two texts: one of several pieces with blank lines, and a short one."""
    folder = tmp_path_factory.mktemp("texts")
    lines = (CHAR / "train.txt").read_text().splitlines()
    lines[3:3] = ["", " "]
    while sum(map(len, lines)) < 60_000:
        lines += lines
    (folder / "b.txt").write_text("\n".join(lines) + "\n")
    (folder / "a.txt").write_text("Time flies\n\nHello\n")
    return [folder / "b.txt", folder / "a.txt"]


def kill_a_worker(out: Path) -> None:
    """Kill the process with the model once the first files are there."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        time.sleep(0.05)
        found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        workers = [line.split()[0] for line in found.splitlines() if "ray::MapWorker" in line]
        if workers and [*out.parent.glob(f".{out.name}.tmp/new/*.parquet")]:
            os.kill(int(workers[0]), signal.SIGKILL)
            return


def test_vectors_though_a_worker_is_killed(texts, tmp_path):
    out = tmp_path / "out"
    killer = threading.Thread(target=kill_a_worker, args=[out], daemon=True)
    killer.start()
    said = run("embed", *texts, out, *MODEL, *RAY, "--dtype", "float32")
    n_lines = [len(text.read_text().splitlines()) for text in texts]
    assert said.splitlines()[-1].startswith(f"{sum(n_lines):,} lines -> {out}: float32")
    run("embed", *texts, tmp_path / "one", *MODEL, "--format", "parquet", "--dtype", "float32")
    table, expected = pq.read_table(out), pq.read_table(tmp_path / "one")
    assert table.schema.equals(expected.schema)
    assert table["line"].to_pylist() == [*range(n_lines[0]), *range(n_lines[1])]
    for column in ("file", "line", "sentence", "tokens"):
        assert table[column].to_pylist() == expected[column].to_pylist(), column
    pairs = zip(vectors_of(table["vectors"]), vectors_of(expected["vectors"]), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)
    parts = sorted(path.name for path in out.glob("*.parquet"))
    assert len(parts) > 1 and parts == [f"part-{number:06}.parquet" for number in range(len(parts))]
    assert not killer.is_alive()
    assert "exists; --overwrite replaces it" in refuse("embed", *texts, out, *MODEL, *RAY)


def test_errors_of_workers(texts, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")
    out = tmp_path / "out"
    assert refuse("embed", texts[1], bad, out, *MODEL, *RAY) == (
        f"{bad}: line 2: not UTF-8 (byte 0xff: invalid start byte)"
    )
    message = refuse("embed", texts[1], out, "--model", tmp_path / "none", *RAY)
    assert str(tmp_path / "none") in message and "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_scores(texts):
    expected = run("score", texts[1], *RUN).splitlines()
    found = run("score", texts[1], *RUN, *RAY).splitlines()
    assert len(found) == len(expected) == 3 and found[0] == expected[0]
    for one, other in zip(found[1:], expected[1:], strict=True):
        one, other = one.split("\t"), other.split("\t")
        assert one[:3] + one[5:] == other[:3] + other[5:]
        np.testing.assert_allclose(np.array(one[3:5], float), np.array(other[3:5], float), atol=2e-5)


def test_a_vocabulary(texts, tmp_path):
    flags = ("--train-prefix", *texts, "--min-count", 2)
    found = run("vocab", "build", *flags, "--outfile", tmp_path / "ray.txt", "--ray", "local")
    expected = run("vocab", "build", *flags, "--outfile", tmp_path / "one.txt")
    assert (tmp_path / "ray.txt").read_text() == (tmp_path / "one.txt").read_text()
    assert found.splitlines()[-1] == expected.splitlines()[-1].replace("one.txt", "ray.txt")
