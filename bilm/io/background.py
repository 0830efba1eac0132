"""Background threads: an iterator that runs ahead of its consumer; parallel calls of a function."""

import copy
import functools
import multiprocessing
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from bilm.errors import ProcessError

Item = TypeVar("Item")
Result = TypeVar("Result")

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container


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


def n_visible_cores() -> int:
    """Return the number of cores on which this process may run, without a container's limit of their time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    n = n_visible_cores()
    with suppress(OSError, ValueError):  # no container, or one without a limit
        quota, period = map(int, CPU_LIMIT.read_text(encoding="ascii").split())
        n = min(n, max(quota // period, 1))
    return n


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
        return map(function, items)
    return _in_order(ThreadPoolExecutor(n_at_once, "in-order"), function, items, n_at_once)


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
        ProcessError: a process cannot be started, or was ended from outside.
    """
    if not n_processes:
        return map(function, items)
    fork = copy.copy(multiprocessing.get_context("fork"))
    # Of a pool whose other processes cannot be started, Python ends daemons only.
    fork.Process = functools.partial(fork.Process, daemon=True)  # type: ignore[assignment, misc]
    pool = ProcessPoolExecutor(n_processes, fork, initializer=_end_with_parent)
    return _in_order(pool, function, items, n_processes)


def _in_order(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], n_ahead: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            try:
                waiting.append(pool.submit(function, item))
            except OSError as error:
                raise ProcessError(f"a process cannot be started: {error.strerror}") from None
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenExecutor:
        raise ProcessError("a process was ended from outside; the system may lack memory") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """End this process with its parent, and by no signal that the parent gets too."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="watch", daemon=True).start()
