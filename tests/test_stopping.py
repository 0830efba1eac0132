import os
import signal
import subprocess
import sys
import time

import pytest

from bilm.cli.stopping import StopRequests


def wait_for(stop):
    deadline = time.monotonic() + 5
    while not stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    return stop.reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_ask_for_a_stop(number, capfd):
    before = signal.getsignal(number)
    with StopRequests() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert wait_for(stop) == f"received {number.name}"
    assert "finishing the step and saving" in capfd.readouterr().err
    assert signal.getsignal(number) is before


def test_the_time_allowed_ends_early_enough_for_another_step():
    with StopRequests(time.monotonic() + 100.0) as stop:
        assert not stop()
        stop._longest = 200.0
        assert stop() and "--max-time" in stop.reason


def test_a_second_interrupt_leaves_at_once_even_inside_a_long_call():
    code = """
import ctypes, sys
from bilm.cli.stopping import StopRequests
with StopRequests():
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(30)   # as a step of TensorFlow: no Python code runs meanwhile
    ctypes.CDLL(None).sleep(30)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert b"again leaves at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - started < 5
