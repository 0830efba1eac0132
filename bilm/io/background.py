"""Background threads: an iterator that runs ahead of its consumer; parallel calls of a function."""

import itertools
import multiprocessing
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
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


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], n_processes: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in the order of the items, computed in forked processes.

    Args:
        function: called in the processes, which begin as copies of this one.
        items: read in this process, `n_processes` ahead of the results; items and results are pickled.
        n_processes: number of processes; 0 calls the function in this one.

    Raises:
        Exception: any exception of the function, in place of the item's result.
        MemoryError: the system has killed a process.
    """
    if not n_processes:
        yield from map(function, items)
        return
    # The pools of the standard library take a millisecond more of the processor for each item.
    context = multiprocessing.get_context("fork")
    connections: list[Connection] = []
    processes = []
    try:
        for _ in range(n_processes):
            here, there = context.Pipe()
            connections.append(here)
            process = context.Process(target=_serve, args=(function, there, [*connections]), daemon=True)
            processes.append(process)
            process.start()
            there.close()
        source, waiting = iter(items), deque[Connection]()
        for connection, item in zip(connections, source, strict=False):
            connection.send(item)
            waiting.append(connection)
        while waiting:
            connection = waiting.popleft()
            try:
                result, error = connection.recv()
                for item in itertools.islice(source, 1):  # at once, so that the process is not idle
                    connection.send(item)
                    waiting.append(connection)
            except (EOFError, ConnectionError):
                raise MemoryError("a process was ended; the system may lack memory") from None
            if error is not None:
                raise error
            yield result
    finally:
        for process in processes:
            with suppress(AttributeError):  # not started
                process.terminate()
                process.join()
        for connection in connections:
            connection.close()


def _serve(function: Callable[[Any], Any], connection: Connection, others: list[Connection]) -> None:
    """Answer items with pairs of a result and an exception, until the other end closes."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the first process, which ends this one
    for other in others:  # copies, which would keep the connections open when that process is killed
        other.close()
    with suppress(EOFError, ConnectionError):
        while True:
            item = connection.recv()
            try:
                result = function(item)
            except Exception as error:
                connection.send((None, error))
            else:
                connection.send((result, None))
