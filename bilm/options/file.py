"""Files of options: reading an ``options.json``, a run's or one that goes with dumped weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import OptionsError
from bilm.io.json_reader import parse_json
from bilm.options.hyper_parameters import Options

_LOG = logging.getLogger(__name__)


def load_options(
    path: str | Path, unknown: list[str] | None = None, missing: list[str] | None = None
) -> Options:
    """Read an ``options.json``; see `Options.from_json`.

    Args:
        path: the file.
        unknown: when given, unrecognised keys are added to it instead of refused.
        missing: when given, keys with a value of their own that the file lacks are added to it.

    Raises:
        OptionsError: the file is missing, is not JSON, or holds invalid options.
    """
    values = _read_json(path)
    options = _parse(path, values, unknown)
    if missing is not None and isinstance(values, dict):
        missing += [key for key in options.to_json() if key not in values]
    return options


def load_inference_options(path: str | Path, unknown: list[str] | None = None) -> Options:
    """Read the options that go with dumped weights: the model is bidirectional unless they deny it.

    Raises:
        OptionsError: as `load_options`.
    """
    values = _read_json(path)
    return _parse(path, {"bidirectional": True} | values if isinstance(values, dict) else values, unknown)


def warn_of_unknown(path: str | Path, unknown: Sequence[str]) -> None:
    """Warn of the unrecognised keys of a file, if there are any."""
    if unknown:
        _LOG.warning("%s: unrecognised options: %s", path, ", ".join(sorted(unknown)))


def _read_json(path: str | Path) -> object:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OptionsError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: not UTF-8 (byte {error.start})") from error
    try:
        return parse_json(text)
    except ValueError as error:
        raise OptionsError(f"{path}: not JSON: {error}") from error


def _parse(path: str | Path, values: object, unknown: list[str] | None) -> Options:
    try:
        return Options.from_json(values, unknown)
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from error
