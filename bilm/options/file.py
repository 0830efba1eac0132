"""Files of options: reading an ``options.json``, a run's or one that goes with dumped weights; TOML."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import ArgumentError, OptionsError
from bilm.io import PathLike
from bilm.io.foreign import explained
from bilm.io.json import parse_json
from bilm.io.messages import json_line
from bilm.io.outputs import read_file
from bilm.options.hyper_parameters import PRESETS, Options

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
    """Read an ``options.json``, or the same keys in TOML, with nothing else in it; see `read_options`.

    Raises:
        OptionsError: the file is missing, is not JSON or TOML, or holds invalid or unknown options.
    """
    return read_options(path, refuse_unknown=True).options


def choose_options(preset: str | None, options: Options | Mapping[str, Any] | PathLike | None) -> Options:
    """The hyper-parameters of a preset or, instead, of a file or of the object that such a file holds.

    Raises:
        ArgumentError: both are given.
        OptionsError: there is no such preset; or as `load_options`.
    """
    if preset is not None and options is not None:
        raise ArgumentError("`preset` and `options` exclude each other")
    if preset is not None and preset not in PRESETS:
        raise OptionsError(f"`preset` is {preset!r:.80}; there are {', '.join(PRESETS)}")
    if options is None:
        options = PRESETS[preset or "laptop"]
    elif isinstance(options, Mapping):
        options = Options.from_json(options)
    elif not isinstance(options, Options):
        options = load_options(Path(options))
    # The tokens are counted; a number in the file speaks of another corpus.
    return dataclasses.replace(options, n_train_tokens=None)


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
    values = read_values(path, data)
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


def read_values(path: PathLike, data: bytes | None = None) -> Any:  # noqa: ANN401
    """Read a file of values: TOML if its name ends in ``.toml``, else JSON.

    Args:
        path: of the file, or what to call it in an error.
        data: what is in it, where that was read already.

    Raises:
        OptionsError: the file is missing, or is not of this form.
    """
    data = read_file(path, OptionsError) if data is None else data
    form = "TOML" if Path(path).suffix == ".toml" else "JSON"
    try:
        text = data.decode("utf-8-sig")
        return parse_json(_toml_as_json(text) if form == "TOML" else text)
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: not UTF-8 (byte {error.start})") from error
    except ImportError as error:
        raise OptionsError(f"{path}: TOML needs Python 3.11 or later; give JSON, in a file.json") from error
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"{path}: not {form}: {error}") from error


def _toml_as_json(text: str) -> str:
    """TOML as JSON, of which there is one set of rules for what is too deep or too large."""
    import tomllib  # of Python 3.11

    return json.dumps(tomllib.loads(text), default=str)


def toml_lines(values: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """Write plain values in TOML, whose scalars and lists JSON writes alike; None is left out.

    Args:
        values: by keys of letters, digits and underscores.
        table: that they are in, its dotted name with a dot at the end.
    """
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], Mapping)):
        if isinstance(value, Mapping):
            yield f"\n[{table}{key}]"
            yield from toml_lines(value, f"{table}{key}.")
        elif value is not None:
            yield f"{key} = {json_line(value)}"
