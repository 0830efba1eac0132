import threading
import time

import pytest

from bilm.io.background import map_in_order


def slow_if_even(number):
    time.sleep(0.01 * (number % 2 == 0))
    return number, threading.current_thread().name


@pytest.mark.parametrize("n_at_once", [1, 2, 3, 50])
def test_results_are_in_the_order_of_the_items(n_at_once):
    found = list(map_in_order(slow_if_even, range(20), n_at_once))
    assert [number for number, _ in found] == list(range(20))
    assert len({name for _, name in found}) <= n_at_once
    assert (n_at_once == 1) == ({name for _, name in found} == {threading.current_thread().name})


def test_items_are_read_only_a_little_ahead():
    taken = []
    results = map_in_order(lambda item: item, map(lambda item: taken.append(item) or item, range(100)), 2)
    assert next(results) == 0
    assert len(taken) == 3
    results.close()


@pytest.mark.parametrize("n_at_once", [1, 2])
def test_an_error_comes_in_its_turn(n_at_once):
    def fail(number):
        if number == 3:
            raise ValueError("three")
        return number

    results = map_in_order(fail, range(100), n_at_once)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
