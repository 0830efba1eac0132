"""Work in the background: an iterator run ahead of its consumer, a function of several items at a time."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(iterator: Iterable[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the items of an iterator that runs ahead in a background thread.

    Args:
        iterator: run in the thread alone, and closed by it if it can be.
        depth: items ready at most.

    Raises:
        Exception: whatever the iterator raises, when the items before it are used up.
    """
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()  # an item, and how the iterator ended
    room, stop = threading.Semaphore(depth), threading.Event()

    def produce() -> None:
        source = iter(iterator)
        try:
            while room.acquire() and not stop.is_set():
                ready.put((next(source), None))
        except BaseException as error:
            ready.put((None, error))
        finally:
            if hasattr(source, "close"):
                source.close()

    threading.Thread(target=produce, name="prefetch", daemon=True).start()
    try:
        while True:
            item, ending = ready.get()
            if isinstance(ending, StopIteration):
                return
            if ending is not None:
                raise ending
            room.release()
            yield item
    finally:
        stop.set()
        room.release()


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_at_once: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in their order.

    Args:
        function: called in as many threads.
        items: read in the thread that asks for the results, `n_at_once` ahead of them.
        n_at_once: calls at the same time; with 1 no thread is started.

    Raises:
        Exception: whatever the function raises for an item, in its turn.
    """
    if n_at_once == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_at_once, "in-order") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > n_at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
