import gc
import itertools
import os
import signal
import threading

import pytest

from bilm.errors import DataError, ProcessError
from bilm.io import background
from bilm.io.background import map_in_order, map_in_processes, prefetch


def failing():
    yield 1
    raise DataError("line 7")


def test_prefetch_passes_items_and_exceptions():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))
    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(DataError, match="line 7"):
        next(items)


@pytest.mark.parametrize("leave", ["close", "delete"])
def test_prefetch_stops_with_its_consumer(leave):
    made = []
    closed = threading.Event()

    def numbers():
        try:
            for number in itertools.count():
                made.append(number)
                yield number
        finally:
            closed.set()

    items = prefetch(numbers(), depth=2)
    assert [next(items), next(items)] == [0, 1]
    if leave == "close":
        items.close()
    del items
    gc.collect(0)  # what is young; all that other tests have left takes seconds
    assert closed.wait(20)
    assert len(made) <= 5, "no more than the depth is made ahead"


def test_map_keeps_the_order():
    is_second_done = threading.Event()

    def second_first(number):
        assert number or is_second_done.wait(20)
        is_second_done.set()
        return number

    assert list(map_in_order(second_first, range(20), 3)) == list(range(20))
    thread = threading.current_thread
    assert list(map_in_order(lambda _: thread(), range(2), 1)) == [thread()] * 2


@pytest.fixture
def _forks():
    """A fork that collects functions of TensorFlow, which other tests have left, crashes."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_forks")
def test_processes_leave_signals_to_their_parent():
    numbers = [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
    assert list(map_in_processes(signal.getsignal, numbers, 1)) == [signal.SIG_IGN] * 3


@pytest.mark.usefixtures("_forks")
def test_process_that_is_ended_is_told():
    with pytest.raises(ProcessError, match="a process was ended from outside; the system may lack memory"):
        list(map_in_processes(os._exit, [1], 1))


@pytest.mark.parametrize("n_at_once", [1, 2])
def test_map_raises_in_order(n_at_once):
    taken = []
    items = map(lambda item: taken.append(item) or item, [1, 2, 4, 0, *range(100)])
    results = map_in_order(lambda number: 4 / number, items, n_at_once)
    assert next(results) == 4.0 and len(taken) == (1 if n_at_once == 1 else 3)
    assert [next(results) for _ in range(2)] == [2.0, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize(
    ("limit", "n"), [("150000 100000\n", 1), ("50000 100000\n", 1), ("max 100000\n", None)]
)
def test_cores_are_those_of_container(limit, n, tmp_path, monkeypatch):
    monkeypatch.setattr(background, "CPU_LIMIT", tmp_path / "cpu.max")
    everywhere = background.n_cores()
    (tmp_path / "cpu.max").write_text(limit)
    assert background.n_cores() == (n or everywhere)
