"""The request of a call of train or restart, and the settings that both have."""

import dataclasses
import difflib
import glob
import inspect
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bilm.errors import ArgumentError, OptionsError
from bilm.io import STDIN, PathLike, as_patterns, is_url
from bilm.io.json_objects import Arguments, Bounds, JsonObject, Positive, plain
from bilm.options import Options, recipes
from bilm.options.options_file import read_values, with_directions
from bilm.options.parameters import parameter, parameters
from bilm.options.plan import Plan
from bilm.run_directory.records import WRITER, warn_of_unknown
from bilm.runs.reporter import ProgressReporter, Reporter


def steps_or_minutes(value: int | str) -> int | str:
    """Parse ``1250`` (steps) or ``"10m"`` (minutes).

    Raises:
        OptionsError: the value is neither.
    """
    return _steps_or(value, r"(?=[0.]*[1-9])[0-9]{1,18}(\.[0-9]+)?m", "of minutes, such as 10m")


def steps_or_epoch(value: int | str) -> int | str:
    """Parse ``1250`` (steps) or ``"epoch"``.

    Raises:
        OptionsError: the value is neither.
    """
    return _steps_or(value, "epoch", "'epoch'")


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"(?:(?P<d>[0-9]{1,9})-)?(?P<h>[0-9]{1,9}):(?P<m>[0-5]?[0-9])(?::(?P<s>[0-5]?[0-9]))?")


def seconds(value: float | str) -> float:
    """Parse a duration to seconds: ``90m``, ``2h``, ``1:30:00`` (hours first) or ``1-12:00:00`` (days first).

    Raises:
        OptionsError: a string has another form.
    """
    if not isinstance(value, str):
        return value
    total = 0.0
    if match := re.fullmatch(r"(?P<number>[0-9]{1,9}(?:\.[0-9]+)?)(?P<unit>[smhd])", value):
        total = float(match["number"]) * _SECONDS[match["unit"]]
    elif match := _CLOCK.fullmatch(value):
        total = sum(float(number or 0) * _SECONDS[unit] for unit, number in match.groupdict().items())
    if not total:
        raise OptionsError(f"{value!r:.80} is not a time such as 90m, 2h, 1:30:00 or 1-12:00:00")
    return total


def _steps_or(value: int | str, pattern: str, other: str) -> int | str:
    text = str(value)
    if re.fullmatch(r"0*[1-9][0-9]{,17}", text):
        return int(text)
    if re.fullmatch(pattern, text):
        return text
    raise OptionsError(f"{text!r:.80} is neither a number of steps, such as 1250, nor {other}")


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Settings of a call; `values` holds changes for `bilm.Options.with_values`."""

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    heldout_prefix: tuple[str, ...] = parameter((), "text to validate on")
    eval_every: int | str = parameter("epoch", "steps between validations", shown="epoch")
    patience: Positive | None = parameter(
        None, "stop after this many validations without improvement", shown="no early stop"
    )
    save_every: int | str = parameter(
        "10m", "steps, or minutes such as 10m, between checkpoints", shown="10m"
    )
    keep: Positive = parameter(2, "number of recent checkpoints to keep, besides the best")
    max_steps: Positive | None = parameter(None, "stop after this many steps", shown="all epochs")
    max_time: Annotated[float, Bounds(above=0)] | None = parameter(
        None, "save and exit with status 75 within this time: 90m, 2h, 1:30:00", shown="no limit"
    )
    resume: bool = parameter(False, "continue an interrupted run; without a checkpoint, start it")
    dry_run: bool = parameter(False, "count the text, time a few steps, write nothing")
    seed: Annotated[int, Bounds(least=0, most=(1 << 31) - 1)] | None = parameter(
        None, "random seed", shown="drawn and recorded"
    )
    shuffle: bool = parameter(True, "shuffle the files of the text and their sentences")
    shuffle_buffer: Positive = parameter(100_000, "number of sentences shuffled at a time; limits memory use")
    n_gpus: Positive = parameter(1, "number of GPUs per machine, each with a replica of the model")
    threads: Positive | None = parameter(
        None, "threads of each TensorFlow operation; both directions run at once", shown="half of the cores"
    )
    jit: bool = parameter(False, "compile the whole model with XLA, not only its LSTM")
    log_every: Positive = parameter(20, "steps between lines of metrics.jsonl and points in TensorBoard")
    histograms_every: Positive | None = parameter(
        None, "steps between TensorBoard histograms of the weights", shown="no histograms"
    )

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "TrainingSettings":
        """Read settings from keyword arguments.

        Args:
            arguments: fields of this class, hyper-parameters, and ``changes``, a mapping of further
                hyper-parameters, by name; None means that the argument is missing.

        Raises:
            ArgumentError: an argument is unknown, or needs another one.
            OptionsError: an argument has the wrong type, or is out of range.
        """
        read = {name: value for name, value in arguments.items() if value is not None}
        for name in [name for name in _READ_BY if name in read]:
            try:
                read[name] = _READ_BY[name](read[name])
            except OptionsError as error:
                raise OptionsError(f"`{name}`: {error}") from error
        reader = Arguments("", read)
        present = reader.values
        for name in present.keys() - set(ARGUMENTS):
            near = difflib.get_close_matches(name, ARGUMENTS, n=1)
            hint = 'other keys of options.json go in changes={"key": value}'
            hint = f"did you mean `{near[0]}`?" if near else hint
            raise ArgumentError(f"`{name}`: no such argument; {hint}")
        heldout = as_patterns(present.get("heldout_prefix", ()), "heldout_prefix")
        for name in ("eval_every", "patience"):
            if name in present and not heldout:
                raise ArgumentError(f"`{name}` needs `heldout_prefix`")
        changes = reader.take("changes", dict, {})
        if "recipe" in changes:
            raise ArgumentError("recipe: only records which one was used; give the argument `recipe` instead")
        own = {name: present[name] for name in HYPER_PARAMETERS if name in present}
        values = {**changes, **own}
        for name in changes:
            if changes[name] != values[name]:
                given = f"{values[name]!r} and, in the changes (--set), {changes[name]!r}"
                raise ArgumentError(f"`{name}`: given as {given}; give one of them")
        settings = reader.read_as(cls, values=values, heldout_prefix=heldout)
        if reader.problems:
            raise OptionsError(reader.problems[0])
        return settings


class TrainingArguments(TypedDict, total=False):
    """Keyword arguments for `TrainingSettings.from_arguments`; None for a default."""

    n_epochs: int | None
    batch_size: int | None
    n_train_tokens: int | None
    learning_rate: float | None
    dropout: float | None
    accumulate: int | None
    optimizer: str | None
    warmup_steps: int | None
    learning_rate_decay: str | None
    precision: str | None
    weight_decay: float | None
    changes: Mapping[str, Any] | None
    heldout_prefix: PathLike | Iterable[PathLike] | None
    eval_every: int | str | None
    patience: int | None
    save_every: int | str | None
    keep: int | None
    max_steps: int | None
    max_time: float | str | None
    resume: bool | None
    dry_run: bool | None
    seed: int | None
    shuffle: bool | None
    shuffle_buffer: int | None
    n_gpus: int | None
    threads: int | None
    jit: bool | None
    log_every: int | None
    histograms_every: int | None


_READ_BY: Mapping[str, Callable[[Any], Any]] = {
    **{"save_every": steps_or_minutes, "eval_every": steps_or_epoch, "max_time": seconds}
}
HYPER_PARAMETERS = tuple(entry.name for entry in parameters(Options).values() if entry.flag)
"""Hyper-parameters that are keyword arguments; ``changes`` takes every key of ``options.json``."""

ARGUMENTS = tuple(TrainingArguments.__annotations__)
"""Names of the keyword arguments of `TrainingSettings.from_arguments`."""


TEXTS = ("train_prefix", "heldout_prefix")
"""Arguments that are patterns of text files."""

FIXED: tuple[str, ...] = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab", "share_embedding_softmax")
"""Keys of the options that cannot change when training continues."""

_PATHS = "corpus vocab_file old_vocab_file options options_file weight_file model save_dir save_to".split()
_OF_ONE_CALL = ("max_time", "resume", "dry_run")
_KINDS: Mapping[str, Any] = {"changes": dict, "options": str | dict, **dict.fromkeys(TEXTS, object)}
_IN_FILE = (*ARGUMENTS, "train_prefix", "corpus", "vocab_file", "save_dir", "preset", "options", "recipe")


def read_arguments(path: PathLike) -> dict[str, Any]:
    """Read the arguments of `bilm.train` from a TOML file, such as the ``run.toml`` of a run, or from JSON.

    Texts are returned as tuples of patterns, ``options`` as a dictionary or a file name. Names that another
    version of bilm wrote and this one does not know are left out with a warning. The call checks the values.

    Raises:
        OptionsError: a name is unknown.
    """
    values = read_values(path)
    if isinstance(values, dict) and "lstm" in values:
        raise OptionsError(f"{path}: has the hyper-parameters of a model; give the file as `options`")
    file = JsonObject("", values)
    writer = file.take("written_by", str, WRITER)
    file.taken.update(_IN_FILE)
    try:
        if writer == WRITER:
            file.refuse_unknown()
        if file.problems:
            raise OptionsError("; ".join(file.problems))
        values = {name: value for name, value in values.items() if name in _IN_FILE and value is not None}
        for name, value in values.items():
            if not isinstance(value, _KINDS.get(name, str | int | float)):
                raise OptionsError(f"{name}: {value!r:.80} has the wrong type; see the run.toml of any run")
        values |= {name: as_patterns(values[name], name) for name in TEXTS if name in values}
        unknown = file.unknown
        if isinstance(values.get("options"), dict):
            known, others = Options.parse(with_directions(values["options"]), refuse_unknown=writer == WRITER)
            values["options"] = known.to_json() | {"n_tokens_vocab": None}  # as in `choose_options`
            unknown += [f"options.{key}" for key in others]
        warn_of_unknown(path, unknown, writer)
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from error
    return values


def with_corpus(arguments: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the arguments of a call with the texts and the vocabulary of its `corpus`, if it has one.

    Args:
        arguments: arguments of the call by name, without default values; texts as patterns.
        kind: ``train`` or ``restart``, which needs a new vocabulary only to remap to it.

    Raises:
        ArgumentError: the corpus is none, or goes with another text or vocabulary; or without it, the text or
            the vocabulary is missing.
    """
    if "corpus" not in arguments:
        needed = ["train_prefix"] + ["vocab_file"] * (kind == "train")
        if missing := [f"`{name}`" for name in needed if name not in arguments]:
            raise ArgumentError(f"give {' and '.join(missing)}, or the `corpus` of `bilm prepare`")
        return dict(arguments)
    from bilm.text.prepare import corpus_arguments

    own = corpus_arguments(arguments["corpus"])
    if kind == "restart" and not arguments.get("remap_vocab"):
        del own["vocab_file"]
    for name in (arguments.keys() & own.keys()) - {"heldout_prefix"}:
        if arguments[name] != own.get(name):  # what repeats a call may name both
            raise ArgumentError(f"`corpus` does not go with `{name}`")
    return {**own, **arguments}


class Request:
    """Everything that a call of train or restart says, checked; no file has been opened.

    Args:
        function: `bilm.train` or `bilm.restart`.
        arguments: all arguments of the function, by name.
        save_dir: run directory to write.
        recipe: recipe that fills in the options; None to leave them unchanged.
        in_place: true to continue the run in `save_dir`.
        freeze: part of the model to freeze, see `bilm.training.trainer.Trainer`.

    Attributes:
        kind: name of the function, ``"train"`` or ``"restart"``.
        arguments: arguments and settings by name, without default values and callbacks, with the files of the
            corpus; paths are absolute.
        settings: see `TrainingSettings.from_arguments`.
        overwrite: true if a new run may replace an existing one.
        reporter: receives the progress of the call.
        should_stop: returns true to request a stop.
        until: deadline of the call, in seconds of `time.monotonic`.
        command: the call as it is recorded in ``calls.jsonl``.
        steps: ``text.json`` of the corpus; None without a corpus.

    Raises:
        ArgumentError: arguments are missing or exclude each other.
        OptionsError: as `TrainingSettings.from_arguments`, or the recipe is unknown.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments: Mapping[str, Any],
        save_dir: PathLike,
        *,
        recipe: str | None = None,
        in_place: bool = False,
        freeze: str | None = None,
    ) -> None:
        self.kind = function.__name__
        defaults = {name: entry.default for name, entry in inspect.signature(function).parameters.items()}
        arguments = plain(arguments)
        typed = {**arguments, **arguments["settings"]}
        for name in ("settings", "ray", "reporter", "should_stop"):
            typed.pop(name, None)
        typed |= {name: as_patterns(typed[name], name) for name in TEXTS if typed.get(name) is not None}
        typed = {name: value for name, value in typed.items() if value not in (None, (), defaults.get(name))}
        self.reporter: Reporter = arguments["reporter"] or ProgressReporter()
        written = ", ".join(f"{name}={_written(value)}" for name, value in typed.items())
        self.command = self.reporter.command or f"bilm.{self.kind}({written})"
        # From here on the current directory may change.
        self.save_dir = Path(save_dir)
        self.path = self.save_dir.absolute()
        paths = [name for name in (*TEXTS, *_PATHS) if name in typed]
        if os.path.dirname(str(typed.get("checkpoint", ""))):
            paths.append("checkpoint")
        absolute = {name: _absolute(typed[name]) for name in paths}
        self.arguments = with_corpus(typed | absolute, self.kind)
        self.steps: Path | None = self.arguments.pop("steps", None)
        heldout = {"heldout_prefix": self.arguments.get("heldout_prefix")}
        self.settings = TrainingSettings.from_arguments(arguments["settings"] | heldout)
        if "max_time" in typed:
            self.arguments["max_time"] = self.settings.max_time
        self.overwrite = arguments["overwrite"]
        if self.overwrite and self.settings.resume:
            raise ArgumentError("`overwrite` and `resume` exclude each other")
        if recipe not in (None, *recipes.RECIPES):
            raise OptionsError(f"`recipe` is {recipe!r}, not one of {', '.join(recipes.RECIPES)}")
        self.recipe, self.in_place, self.freeze = recipe, in_place, freeze
        self.should_stop: Callable[[], bool] = arguments["should_stop"] or (lambda: False)
        self.until = time.monotonic() + (self.settings.max_time or math.inf)

    def files(self, *names: str) -> list[Path]:
        """Return the files among the arguments of some names."""
        return [Path(file) for name in names if isinstance(file := self.arguments.get(name), str)]

    def repeated(self, plan: Plan) -> dict[str, Any]:
        """Return arguments that repeat the call of a plan in another directory, with absolute paths."""
        names = ("corpus", "train_prefix", "vocab_file")
        values = {name: self.arguments[name] for name in names if name in self.arguments}
        values |= {name: value for name, value in vars(self.settings).items() if name not in _OF_ONE_CALL}
        values |= {"seed": plan.seed, "options": plan.options.to_json(), "threads": plan.threads}
        values["n_gpus"] = plan.n_gpus
        n_train_tokens = values["options"].pop("n_train_tokens")  # counted anew
        if "n_train_tokens" in values.pop("values"):
            values["n_train_tokens"] = n_train_tokens
        if not values["heldout_prefix"]:
            del values["heldout_prefix"], values["eval_every"]
        return values


def _written(value: object) -> str:
    if isinstance(value, Options):
        return "Options(...)"
    if isinstance(value, tuple):  # texts
        names = [os.fspath(pattern) for pattern in value]
        return repr(names[0] if len(names) == 1 else names)
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _absolute(value: Any) -> Any:  # noqa: ANN401
    """Return a path, or each of several, as it is in any current directory; other values unchanged."""
    if isinstance(value, tuple):
        return tuple(map(_absolute_pattern, value))
    is_path = isinstance(value, str | os.PathLike) and os.fspath(value) != STDIN
    if is_path and is_url(value):
        raise ArgumentError(f"{value!r:.80} is a URL; give a local path")
    return os.path.abspath(value) if is_path else value


def _absolute_pattern(pattern: str) -> str:
    """Return the pattern of a text as `_absolute` does; the current directory's name is no pattern."""
    path: str = _absolute(pattern)
    if path == pattern or os.path.exists(path):
        return path
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), pattern))
