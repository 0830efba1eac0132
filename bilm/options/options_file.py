"""Options files: reading ``options.json`` of a run or of dumped weights; reading and writing TOML."""

import dataclasses
import json
import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bilm.errors import ArgumentError, OptionsError
from bilm.io import PathLike, foreign, messages, outputs
from bilm.io.json_objects import parse_json
from bilm.options.hyper_parameters import PRESETS, Options

_LOG = logging.getLogger(__name__)


def load_options(path: str | Path) -> Options:
    """Read an ``options.json``, or the same keys in TOML; other keys are refused.

    Raises:
        OptionsError: the file is missing, is not JSON or TOML, or contains invalid or unknown options.
    """
    return read_options(path, refuse_unknown=True)


def choose_options(preset: str | None, options: Options | Mapping[str, Any] | PathLike | None) -> Options:
    """Return the hyper-parameters of a preset, of an options file, or of the decoded object of such a file.

    Args:
        preset: name in `PRESETS`; ``laptop`` by default.
        options: options, path of their file, or its decoded object; in a file ``n_tokens_vocab`` is ignored.

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
        options = Options.from_json(with_directions(options))
    elif not isinstance(options, Options):
        options = dataclasses.replace(load_options(Path(options)), n_tokens_vocab=None)
    # Words and tokens are counted in the vocabulary and the text; numbers in the file belong to others.
    return dataclasses.replace(options, n_train_tokens=None)


def read_options(
    path: str | Path,
    data: bytes | None = None,
    *,
    for_inference: bool = False,
    refuse_unknown: bool = False,
    missing: Mapping[str, Any] | None = None,
) -> Options:
    """Read an options file, which may have other keys too; these are logged as a warning.

    Dumped weights have both directions unless their options say otherwise. Therefore ``bidirectional``
    defaults to true in every file with 262 characters, or with no keys but ``lstm``, ``char_cnn`` and
    ``unicode_form``.

    Args:
        path: the file, or its name for errors if `data` is given.
        data: content of the file if it was read before.
        for_inference: the file is known to belong to dumped weights.
        refuse_unknown: raise an error for unknown keys.
        missing: values of keys that the file lacks, if they are not the defaults.

    Raises:
        OptionsError: as `load_options`; for unknown keys only with `refuse_unknown`.
    """
    values = read_values(path, data)
    keys = values if isinstance(values, dict) else {}
    if keys:
        values = with_directions(keys, for_inference)
    if "lstm" not in keys and "train_prefix" in keys:
        remedy = "give the file as `config` (in Python, **read_arguments(FILE))"
        raise OptionsError(f"{path}: has the arguments of a command; {remedy}")
    try:
        options, unknown = Options.parse({**(missing or {}), **values} if keys else values, refuse_unknown)
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from error
    if unknown:
        _LOG.warning("%s: unrecognised options: %s", path, ", ".join(sorted(unknown)))
    return options


def with_directions(values: Mapping[str, Any], for_inference: bool = False) -> dict[str, Any]:
    """Return the object of an options file with the directions that dumped weights leave out.

    Args:
        values: the object.
        for_inference: it is known to belong to dumped weights.
    """
    cnn = values.get("char_cnn")
    has_262 = isinstance(cnn, Mapping) and cnn.get("n_characters") == 262
    is_dump = for_inference or has_262 or values.keys() <= {"lstm", "char_cnn", "unicode_form"}
    return {"bidirectional": True, **values} if is_dump else {**values}


def load_inference_options(path: str | Path, data: bytes | None = None) -> Options:
    """Read the options of dumped weights, as `read_options`.

    Args:
        path: see `read_options`.
        data: see `read_options`.

    Raises:
        OptionsError: the file is missing, is not JSON or TOML, or contains invalid options; the message
            identifies files of other programs.
    """
    with foreign.explained(path, OptionsError):
        return read_options(path, data, for_inference=True)


def read_values(path: PathLike, data: bytes | None = None) -> Any:  # noqa: ANN401
    """Decode a file: JSON if its name ends in ``.json`` or it begins with a brace, otherwise TOML.

    Args:
        path: the file, or its name for errors if `data` is given.
        data: content of the file if it was read before.

    Raises:
        OptionsError: the file is missing, or is not valid TOML or JSON.
    """
    data = outputs.read_file(path, OptionsError, or_pipe=True) if data is None else data
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionsError(f"{path}: not UTF-8 (byte {error.start})") from error
    is_json = Path(path).suffix == ".json" or text.lstrip().startswith("{")
    try:  # TOML is read as JSON, so that the same limits of depth and size apply
        return parse_json(text if is_json else json.dumps(tomllib.loads(text), default=str))
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"{path}: not {'JSON' if is_json else 'TOML'}: {error}") from error


def toml_lines(values: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """Yield plain values as lines of TOML; None is left out.

    Scalars and lists are written as JSON, which TOML reads alike.

    Args:
        values: values by key; keys consist of letters, digits and underscores.
        table: dotted name of the table, ending with a dot; empty for the top level.
    """
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], Mapping)):
        if isinstance(value, Mapping):
            yield f"\n[{table}{key}]"
            yield from toml_lines(value, f"{table}{key}.")
        elif value is not None:
            yield f"{key} = {messages.json_line(value)}"
