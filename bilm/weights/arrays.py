"""Arrays of weights, apart from any format, and checks of them."""

from collections.abc import Iterable, Mapping

import numpy as np

from bilm.errors import BilmError, WeightsError
from bilm.weights.names import WeightName

Shapes = Mapping[str, tuple[int, ...]]
Arrays = dict[str, np.ndarray]

_MOST_PROBLEMS = 100  # lines of a message


def check_shapes(actual: Shapes, expected: Shapes, source: str) -> None:
    """Compare the shapes of a file's arrays with a model's; -1 in an expected shape fits any size.

    Raises:
        WeightsError: arrays are missing, misshapen or unexpected; the message lists the first hundred.
    """
    problems = []
    for name, wanted in expected.items():
        if name not in actual:
            problems.append(f"missing: {name} {wanted}")
        elif len(actual[name]) != len(wanted) or any(
            want not in (have, -1) for have, want in zip(actual[name], wanted, strict=True)
        ):
            problems.append(f"misshapen: {name} has {actual[name]}, expected {wanted}")
    unexpected = sorted(actual.keys() - expected.keys())
    problems += [f"unexpected: {name!r:.80} {actual[name]}" for name in unexpected]
    if problems:
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"and {len(problems) - _MOST_PROBLEMS:,} more"]
        raise WeightsError.listing(f"{source} does not fit the options", problems)


def check_arrays(shapes: Shapes, names: Iterable[WeightName], source: str) -> list[WeightName]:
    """Compare the shapes of dumped weights with a model's, and return the names that are there.

    Raises:
        WeightsError: see `check_shapes`; the softmax may be missing.
    """
    needed = [name for name in names if not name.is_softmax or name.hdf5 in shapes]
    check_shapes(shapes, {name.hdf5: name.shape for name in needed}, source)
    return needed


def as_weights(array: np.ndarray, source: str, failure: type[BilmError]) -> np.ndarray:
    """Convert an array to finite float32.

    Args:
        array: array of floats.
        source: name of the array in errors.
        failure: class of the error to raise.

    Raises:
        BilmError: a number is not finite in float32 (of class `failure`).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.asarray(array, np.float32)
        # A finite sum of squares, which is far faster than checking each, implies finite numbers.
        squares = np.dot(numbers.reshape(-1), numbers.reshape(-1))
        if not np.isfinite(squares) and not np.isfinite(numbers).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(numbers))[0]))
            problem = f"holds {array[place]} at {list(place)}, expected finite float32 numbers"
            raise failure(f"{source} {problem}; training may have diverged before it was written")
    return numbers
