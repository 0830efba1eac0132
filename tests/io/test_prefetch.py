import gc
import itertools
import threading
import time

import pytest

from bilm.errors import DataError
from bilm.io.background import prefetch


def threads():
    return {thread for thread in threading.enumerate() if thread.name == "prefetch"}


@pytest.fixture
def wait_for_threads():
    """How many threads of this test are left after some seconds at most."""
    before = threads()

    def wait():
        deadline = time.monotonic() + 5
        while threads() - before and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(threads() - before)

    return wait


def test_prefetch_passes_items_and_exceptions(wait_for_threads):
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))

    def failing():
        yield 1
        raise DataError("line 7")

    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(DataError, match="line 7"):
        next(items)
    assert wait_for_threads() == 0


@pytest.mark.parametrize("leave", ["close", "delete"])
def test_prefetch_stops_with_its_consumer(leave, wait_for_threads):
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
    assert wait_for_threads() == 0
    assert closed.is_set()
    assert len(made) <= 7, "no more than the depth is made ahead"
