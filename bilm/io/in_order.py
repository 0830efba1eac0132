"""A function of many items, several at a time, with the results in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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
