"""Background threads: an iterator that runs ahead of its consumer; parallel calls of a function."""

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
        iterator: runs in the thread only, which also closes it if it has a `close`.
        depth: maximum number of items kept ready.

    Raises:
        Exception: any exception of the iterator, after the items before it.
    """
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()  # pairs of an item and the iterator's exception
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
    """Yield ``function(item)`` for each item, in the order of the items.

    Args:
        function: called in `n_at_once` threads.
        items: read in the consumer's thread, `n_at_once` ahead of the results.
        n_at_once: number of simultaneous calls; 1 starts no thread.

    Raises:
        Exception: any exception of the function, in place of the item's result.
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
