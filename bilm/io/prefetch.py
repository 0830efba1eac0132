"""Running an iterator ahead of its consumer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(iterator: Iterable[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the items of an iterator that runs ahead in a background thread.

    Args:
        iterator: Run in the thread alone, and closed by it if it can be.
        depth: Items ready at most.

    Raises:
        Exception: Whatever the iterator raises, when the items before it are used up.
    """
    ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_produce, args=(iterator, ready, stop), name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, ending = ready.get()
            if isinstance(ending, StopIteration):
                return
            if ending is not None:
                raise ending
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        while not ready.empty():  # room for the item the thread may be waiting to put
            ready.get_nowait()


def _produce(iterator: Iterable, ready: queue.Queue, stop: threading.Event) -> None:
    """Put (item, None) for each item, then (None, how it ended), until told to stop."""
    source = iter(iterator)
    try:
        while not stop.is_set():
            _put(ready, (next(source), None), stop)
    except BaseException as error:
        _put(ready, (None, error), stop)
    finally:
        if hasattr(source, "close"):
            source.close()


def _put(ready: queue.Queue, item: tuple, stop: threading.Event) -> None:
    """Put an item as soon as there is room, or drop it when told to stop."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return
