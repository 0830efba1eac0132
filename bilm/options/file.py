"""Files of options: reading an ``options.json``, a run's or one that goes with dumped weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import OptionsError
from bilm.io.foreign import explained
from bilm.io.json import parse_json
from bilm.io.outputs import read_file
from bilm.options.hyper_parameters import Options

_LOG = logging.getLogger(__name__)
_LONGEST = 1 << 20  # bytes; a file of options has a thousand


class OptionsFile(NamedTuple):
    """What is in a file of options.

    Attributes:
        options: complete with the defaults of what is missing.
        unknown: unrecognised keys, dotted.
        missing: keys that the file lacks and a run's ``options.json`` has.
    """

    options: Options
    unknown: list[str]
    missing: list[str]

    def warn_of_unknown(self, path: str | Path) -> None:
        """Warn of the unrecognised keys, if there are any."""
        if self.unknown:
            _LOG.warning("%s: unrecognised options: %s", path, ", ".join(sorted(self.unknown)))


def load_options(path: str | Path) -> Options:
    """Read an ``options.json`` with nothing else in it; see `parse_options`.

    Raises:
        OptionsError: the file is missing, is not JSON, or holds invalid or unknown options.
    """
    values = _parse_json(read_file(path, OptionsError), path, for_inference=False)
    with _named(path):
        return Options.from_json(values)


def read_options(path: str | Path, *, for_inference: bool = False) -> OptionsFile:
    """Read a file in which there may be more than options; see `parse_options`.

    Raises:
        OptionsError: as `load_options`, but for unknown options.
    """
    return parse_options(read_file(path, OptionsError), path, for_inference=for_inference)


def parse_options(data: bytes, path: str | Path, *, for_inference: bool = False) -> OptionsFile:
    """As `read_options`, of the bytes of a file.

    Dumped weights are of both directions unless their options deny it. So a file with 262 characters, or with
    nothing but ``lstm`` and ``char_cnn``, means both, whatever it is read for.

    Args:
        data: what is in the file.
        path: what to call it in an error.
        for_inference: whether it is known to go with dumped weights.

    Raises:
        OptionsError: as `read_options`.
    """
    values = _parse_json(data, path, for_inference)
    with _named(path):
        options, unknown = Options.parse(values)
    missing = [] if not isinstance(values, dict) else [k for k in options.to_json() if k not in values]
    return OptionsFile(options, unknown, missing)


def load_inference_options(path: str | Path) -> Options:
    """Read the options that go with dumped weights; a warning names unrecognised keys.

    Raises:
        OptionsError: as `load_options`; says what the file is if it is another program's.
    """
    with explained(path, OptionsError):
        found = read_options(path, for_inference=True)
    found.warn_of_unknown(path)
    return found.options


def _parse_json(data: bytes, path: str | Path, for_inference: bool) -> object:
    try:
        values = parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: not UTF-8 (byte {error.start})") from error
    except ValueError as error:
        raise OptionsError(f"{path}: not JSON: {error}") from error
    if isinstance(values, dict) and (for_inference or _goes_with_weights(values)):
        return {"bidirectional": True} | values
    return values


def _goes_with_weights(values: dict[str, Any]) -> bool:
    cnn = values.get("char_cnn")
    return values.keys() <= {"lstm", "char_cnn"} or (isinstance(cnn, dict) and cnn.get("n_characters") == 262)


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from error
