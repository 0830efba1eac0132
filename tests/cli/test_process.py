"""The process around a command: standard streams that are closed or fail, and signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bilm
from tests.helpers import TRAIN, VOCAB

PACKAGE = Path(bilm.__file__).parent
BILM = (sys.executable, "-m", "bilm")
CHECK = ("vocab", "check", str(VOCAB))


def shell(redirection, *arguments):
    """Run a command through a shell, which has redirections that `subprocess` has not."""
    script = f'"$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *BILM, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output():
    done = shell(">/dev/full", *CHECK)
    assert (done.returncode, done.stderr) == (1, "Error: standard output: No space left on device\n")
    assert shell(">/dev/full 2>/dev/full", "--help").returncode == 1


def test_a_reader_that_leaves_ends_the_command_without_a_word():
    with subprocess.Popen([*BILM, *CHECK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 1


def test_closed_streams_are_replaced_by_null(tmp_path):
    """No file is written through the number of a stream that was closed."""
    outfile = tmp_path / "vocab.txt"
    build = ("vocab", "build", "--train-prefix", TRAIN, "--outfile", outfile, "--overwrite")
    for redirection in (">&-", "<&- >&- 2>&-"):
        done = shell(redirection, *build)
        assert (done.returncode, done.stderr) == (0, ""), redirection
        assert outfile.read_text().startswith("<S>\n</S>\n<UNK>\n"), redirection
    done = shell("<&-", "vocab", "build", "--train-prefix", "-", "--outfile", tmp_path / "none")
    assert (done.returncode, done.stderr) == (1, "Error: standard input is empty\n")


def counting(tmp_path, ignored=None):
    """A process that reads text from a pipe, which has none yet; its temporary files are in `tmp_path`."""
    arguments = ("vocab", "build", "--train-prefix", "-", "--outfile", str(tmp_path / "vocab.txt"))
    process = subprocess.Popen(
        [*BILM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: [
            signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ],
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.rglob("=*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_as_shells_expect_and_nothing_is_left(number, tmp_path):
    process = counting(tmp_path)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -number
    assert errors == b"\nAborted!\n"
    assert list(tmp_path.iterdir()) == []


def test_a_hangup_that_was_ignored_stays_ignored(tmp_path):
    process = counting(tmp_path, ignored=signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(b"some words\n", timeout=30)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.slow
def test_tensorflow_is_imported_quietly():
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    code = (
        "from bilm.cli.process import import_tensorflow; import_tensorflow(); import tensorflow, os; "
        "assert not tensorflow.config.experimental.tensor_float_32_execution_enabled(); "
        "assert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'true'"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stderr == b""
