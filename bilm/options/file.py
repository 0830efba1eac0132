"""Files of options: reading an ``options.json``, a run's or one that goes with dumped weights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from bilm.errors import OptionsError
from bilm.io.foreign import explained
from bilm.io.json import parse_json
from bilm.io.outputs import read_file
from bilm.options.hyper_parameters import Options

_LOG = logging.getLogger(__name__)


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
    """Read an ``options.json`` with nothing else in it; see `read_options`.

    Raises:
        OptionsError: the file is missing, is not JSON, or holds invalid or unknown options.
    """
    return read_options(path, refuse_unknown=True).options


def read_options(
    path: str | Path,
    data: bytes | None = None,
    *,
    for_inference: bool = False,
    refuse_unknown: bool = False,
) -> OptionsFile:
    """Read a file in which there may be more than options.

    Dumped weights are of both directions unless their options deny it. So a file with 262 characters, or with
    nothing but ``lstm`` and ``char_cnn``, means both, whatever it is read for.

    Args:
        path: of the file, or what to call it in an error.
        data: what is in it, where that was read already.
        for_inference: whether it is known to go with dumped weights.
        refuse_unknown: whether nothing else may be in it.

    Raises:
        OptionsError: as `load_options`, but for unknown options.
    """
    data = read_file(path, OptionsError) if data is None else data
    try:
        values = parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: not UTF-8 (byte {error.start})") from error
    except ValueError as error:
        raise OptionsError(f"{path}: not JSON: {error}") from error
    keys = values if isinstance(values, dict) else {}
    cnn = keys.get("char_cnn")
    has_262 = isinstance(cnn, dict) and cnn.get("n_characters") == 262
    if keys and (for_inference or has_262 or keys.keys() <= {"lstm", "char_cnn"}):
        values = {"bidirectional": True} | keys
    try:
        options, unknown = Options.parse(values, refuse_unknown)
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from error
    return OptionsFile(options, unknown, [key for key in options.to_json() if key not in values])


def load_inference_options(path: str | Path) -> Options:
    """Read the options that go with dumped weights; a warning names unrecognised keys.

    Raises:
        OptionsError: as `load_options`; says what the file is if it is another program's.
    """
    with explained(path, OptionsError):
        found = read_options(path, for_inference=True)
    found.warn_of_unknown(path)
    return found.options
