import gc
import itertools
import threading
import time

import pytest

from bilm.errors import DataError
from bilm.io.background import map_in_order, prefetch


def threads():
    return {thread for thread in threading.enumerate() if thread.name == "prefetch"}


@pytest.fixture
def n_left():
    """How many threads of this test are left after some seconds at most."""
    before = threads()

    def wait():
        deadline = time.monotonic() + 5
        while threads() - before and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(threads() - before)

    return wait


def failing():
    yield 1
    raise DataError("line 7")


def test_prefetch_passes_items_and_exceptions(n_left):
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))
    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(DataError, match="line 7"):
        next(items)
    assert n_left() == 0


@pytest.mark.parametrize("leave", ["close", "delete"])
def test_prefetch_stops_with_its_consumer(leave, n_left):
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
    assert n_left() == 0 and closed.is_set()
    assert len(made) <= 5, "no more than the depth is made ahead"


@pytest.mark.parametrize("n_at_once", [1, 3, 50])
def test_results_are_in_the_order_of_the_items(n_at_once):
    def slow_if_even(number):
        time.sleep(0.01 * (number % 2 == 0))
        return number, threading.current_thread().name

    found = list(map_in_order(slow_if_even, range(20), n_at_once))
    assert [number for number, _ in found] == list(range(20))
    names = {name for _, name in found}
    assert len(names) <= n_at_once and (n_at_once == 1) == (threading.current_thread().name in names)


@pytest.mark.parametrize("n_at_once", [1, 2])
def test_items_are_read_a_little_ahead_and_an_error_comes_in_its_turn(n_at_once):
    taken = []
    items = map(lambda item: taken.append(item) or item, [1, 2, 4, 0, *range(100)])
    results = map_in_order(lambda number: 4 / number, items, n_at_once)
    assert next(results) == 4.0 and len(taken) == (1 if n_at_once == 1 else 3)
    assert [next(results) for _ in range(2)] == [2.0, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
