import os
import signal
import subprocess
import sys
import time

import pytest

from bilm.cli.process import StopRequests


def wait_for(stop):
    deadline = time.monotonic() + 5
    while not stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    return stop.reason


@pytest.fixture
def default_handlers():
    """As in a process of its own, whatever the tests were started by."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]


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


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_interrupt_where_there_is_nothing_to_save(number, default_handlers, capfd):
    with pytest.raises(KeyboardInterrupt), StopRequests() as stop:
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert stop.reason == f"received {number.name}"
    assert capfd.readouterr().err == ""


def test_what_comes_after_the_first_signal_does_not_disturb_the_cleaning_up(default_handlers):
    cleaned = False
    with pytest.raises(KeyboardInterrupt), StopRequests():
        try:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            cleaned = True
    assert cleaned


def test_a_hangup_stays_ignored(default_handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequests() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and not stop()


def test_a_second_interrupt_leaves_at_once_even_inside_a_long_call():
    code = """
import ctypes, sys
from bilm.cli.process import StopRequests
with StopRequests() as stop:
    stop.save_first()
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(30)   # as a step of TensorFlow: no Python code runs meanwhile
    ctypes.CDLL(None).sleep(30)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert b"again exits at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - started < 5


def test_a_process_in_a_call_that_runs_no_python_leaves_all_the_same():
    code = """
import ctypes
import bilm.cli.process as stopping
stopping._SECONDS_TO_LEAVE = 0.2
with stopping.StopRequests():
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    libc.pthread_mutex_lock(mutex)  # for ever, whatever signals come
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.5)  # it is in the call then
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 75
