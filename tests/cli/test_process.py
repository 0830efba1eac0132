"""The process around a command: standard streams that are closed or fail, and signals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bilm.cli import process
from bilm.cli.process import StopRequests
from tests.helpers import TRAIN, VOCAB, python

CHECK = ("-m", "bilm", "vocab", "check", VOCAB)
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]


def start(*words, ignored=None, **variables):
    """Python in a process of its own that handles no signal, and ignores one at most."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
        env=os.environ | variables,
        preexec_fn=lambda: [
            signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)
            for number in SIGNALS
        ],
    )


def shell(redirection, *arguments):
    """Run a command through a shell, which has redirections that `subprocess` has not."""
    command = ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_one_line():
    done = shell(">/dev/full", *CHECK)
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")
    assert shell(">/dev/full 2>/dev/full", "-m", "bilm", "--help").returncode == 1


def test_closed_pipe_is_silent():
    with start(*CHECK) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 1


def test_closed_streams_become_null(tmp_path):
    """No file is written through the number of a stream that was closed."""
    outfile = tmp_path / "vocab.txt"
    build = ("-m", "bilm", "vocab", "build", "--train-prefix", TRAIN, "--outfile", outfile, "--overwrite")
    for redirection in (">&-", "<&- >&- 2>&-"):
        done = shell(redirection, *build)
        assert (done.returncode, done.stderr) == (0, ""), redirection
        assert outfile.read_text().startswith("<S>\n</S>\n<UNK>\n"), redirection
    done = shell("<&-", *build[:5], "-", "--outfile", tmp_path / "none")
    assert (done.returncode, done.stderr) == (1, "Error: standard input is empty, or has been read before\n")


def counting(tmp_path, ignored=None):
    """A process that reads text from a pipe, which has none yet; its temporary files are in `tmp_path`."""
    words = ("-m", "bilm", "vocab", "build", "--train-prefix", "-", "--outfile", tmp_path / "vocab.txt")
    process = start(*words, ignored=ignored, TMPDIR=str(tmp_path))
    deadline = time.monotonic() + 30
    while not list(tmp_path.rglob("=*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_signal_leaves_nothing(number, tmp_path):
    process = counting(tmp_path)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -number
    assert errors == b"\nAborted!\n"
    assert list(tmp_path.iterdir()) == []


def test_json_is_utf8_in_any_locale(tmp_path):
    (tmp_path / "a").write_text("ł \U0001f600 x\n" * 3)
    flags = ("--out", tmp_path / "c", "--tokens", "--heldout", 0, "--json")
    done = python("-m", "bilm", "prepare", tmp_path / "a", *flags, PYTHONIOENCODING="iso8859-9")
    assert json.loads(done.stdout)["examples"][0] == "ł \U0001f600 x"  # which `python` reads as UTF-8


def test_first_process_of_a_container_has_the_status_of_its_signal(monkeypatch, default_handlers):
    monkeypatch.setattr(os, "kill", lambda *_: None)  # the default action does not end it
    monkeypatch.setattr(process, "main", lambda **_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        process.run()
    assert ended.value.code == 128 + signal.SIGTERM


def test_ignored_hangup_stays_ignored(tmp_path):
    process = counting(tmp_path, ignored=signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(b"some words\n", timeout=30)
    assert (process.returncode, errors) == (0, b"")


# --- stopping -------------------------------------------------------------------------------------


def wait_for(stop):
    deadline = time.monotonic() + 5
    while stop.received is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return stop.reason


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_requests_a_stop(number, default_handlers):
    before = signal.getsignal(number)
    with StopRequests() as stop:
        stop.save_first()
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert wait_for(stop) == f"received {number.name}"
    assert signal.getsignal(number) is before


# ctypes, as a step of TensorFlow: no Python code runs meanwhile.
SECOND_INTERRUPT = """
import ctypes
from bilm.cli.process import StopRequests
with StopRequests() as stop:
    stop.save_first()
    print("ready", flush=True)
    while stop.reason is None:
        ctypes.CDLL(None).usleep(10_000)
    print(stop.reason, flush=True)
    ctypes.CDLL(None).sleep(30)
"""


def test_second_interrupt_exits():
    process = start("-c", SECOND_INTERRUPT)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"received SIGINT\n"  # signals of one number are not queued
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == -signal.SIGINT  # within the sleep
