import os
import signal
import subprocess
import sys
import time

import pytest

from bilm.cli.process import StopRequests

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]


def wait_for(stop):
    deadline = time.monotonic() + 5
    while not stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    return stop.reason


@pytest.fixture
def default_handlers():
    """As in a process of its own, whatever the tests were started by."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_ask_for_a_stop(number, default_handlers, capfd):
    before = signal.getsignal(number)
    with StopRequests() as stop:
        stop.save_first()
        assert not stop()
        os.kill(os.getpid(), number)
        assert wait_for(stop) == f"received {number.name}"
    assert "finishing the step and saving" in capfd.readouterr().err
    assert signal.getsignal(number) is before


# ctypes, as a step of TensorFlow: no Python code runs in the main thread meanwhile.
SECOND_INTERRUPT = """
import ctypes
from bilm.cli.process import StopRequests
with StopRequests() as stop:
    stop.save_first()
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(30)
    ctypes.CDLL(None).sleep(30)
"""
UNREACHABLE = """
import ctypes
from bilm.cli.process import StopRequests
with StopRequests(patience=0.2):
    ctypes.CDLL(None).system(b"echo ready; exec sleep 20")  # goes on waiting, whatever signals come
"""


def python(code):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in SIGNALS],
    )


def test_a_second_interrupt_leaves_at_once_even_inside_a_long_call():
    process = python(SECOND_INTERRUPT)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert b"again exits at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130  # within the first sleep


def test_a_process_in_a_call_that_runs_no_python_leaves_all_the_same():
    process = python(UNREACHABLE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 75
