"""Hyper-parameters: typed, frozen, self-validating, in bilm-tf's exact ``options.json`` form.

The keys of the reference keep their names and meaning. Keys of our own stand beside them, so that
bilm-tf can still read the file:

``variational_dropout``
    one dropout mask for a whole window (true, the default) or a fresh one each step, as bilm-tf does
``word_dropout``
    probability with which a whole input token is dropped
``type_dropout``
    probability with which a word is dropped from the input of a window, wherever it stands there; the
    embedding dropout of Gal and Ghahramani 2016 (arXiv:1512.05287), section 4.2
``weight_dropout``
    probability with which a weight from the hidden state to the gates of an LSTM is dropped for a window;
    DropConnect (Wan et al. 2013) as in Merity et al. 2018 (arXiv:1708.02182)
``activation_regularization``, ``temporal_activation_regularization``
    factors of the penalties on large outputs of the top layer, and on their changes from token to token;
    alpha and beta of Merity et al. 2017 (arXiv:1708.01009)
``weight_decay``
    see `bilm.training.optimizer`
``weight_averaging``
    decay of the moving average of the weights; 0 for none. See `bilm.training.averaging`
``softmax_bias_init``
    ``unigram`` starts the softmax biases at the log counts of the corpus, ``zeros`` as bilm-tf does
``softmax_init_scale``
    factor on the reference's initial standard deviation of the softmax rows, 1/sqrt(projection_dim)
``optimizer``
    ``adagrad`` (the reference's, the default) or another by name; see `Optimizer`
``warmup_steps``, ``learning_rate_decay``
    see `bilm.training.optimizer`
``accumulate``
    batches whose gradients make one update, each with rows and LSTM states of its own
``precision``
    of the matrix products in training; weights, softmax and losses are float32 whatever it is
``recipe``
    the recipe that the others were taken from, for the record; see `bilm.options.recipes`
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from bilm.errors import OptionsError
from bilm.io.json import Bounds, Count, JsonObject
from bilm.options.choices import Decay, Optimizer, Precision, Recipe, SoftmaxBiasInit
from bilm.options.network import (
    HIGHEST,
    AboveZero,
    Activation,
    CharCNNOptions,
    LSTMOptions,
    Size,
    read_char_cnn,
)

_Words = Annotated[int, Bounds(least=1, most=(1 << 31) - 1)]  # ids have 32 bits
_Positive = Annotated[int, Bounds(least=1)]
_Share = Annotated[float, Bounds(least=0, below=1)]
_Factor = Annotated[float, Bounds(least=0, most=HIGHEST)]

__all__ = [
    "Activation",
    "CharCNNOptions",
    "Decay",
    "LSTMOptions",
    "Optimizer",
    "Options",
    "ParsedOptions",
    "Precision",
    "Recipe",
    "SoftmaxBiasInit",
]


@dataclasses.dataclass(frozen=True)
class Options:
    """All hyper-parameters of one language model and its training.

    Attributes beyond the architecture: ``batch_size`` is per replica and, where gradients are
    accumulated, of one of the batches that make an update; ``unroll_steps`` is the window of
    truncated backpropagation, in tokens.

    Example:
        >>> from bilm.options import PRESETS
        >>> options = PRESETS["tiny"].with_values({"lstm.dim": 512, "n_epochs": 5})
        >>> options.lstm.dim, options.char_cnn.n_filters
        (512, 192)
        >>> Options.from_json(options.to_json()) == options
        True
        >>> options.with_values({"lstm.projection_dim": 1024})
        Traceback (most recent call last):
        bilm.errors.OptionsError: invalid options:
          lstm.projection_dim (1024) must not exceed lstm.dim (512); make them equal for no projection
    """

    lstm: LSTMOptions
    char_cnn: CharCNNOptions | None = None
    bidirectional: bool = False
    n_tokens_vocab: _Words | None = None
    share_embedding_softmax: bool = False
    sample_softmax: bool = True
    n_negative_samples_batch: _Words = 8192
    softmax_bias_init: SoftmaxBiasInit = SoftmaxBiasInit.UNIGRAM
    softmax_init_scale: _Factor = 0.1
    dropout: _Share = 0.1
    variational_dropout: bool = True
    word_dropout: _Share = 0.0
    type_dropout: _Share = 0.0
    weight_dropout: _Share = 0.0
    activation_regularization: _Factor = 0.0
    temporal_activation_regularization: _Factor = 0.0
    weight_decay: _Factor = 0.0
    weight_averaging: _Share = 0.0
    batch_size: Size = 128
    unroll_steps: Size = 20
    n_epochs: _Positive = 10
    n_train_tokens: _Positive | None = None
    optimizer: Optimizer = Optimizer.ADAGRAD
    learning_rate: AboveZero = 0.2
    warmup_steps: Count = 0
    learning_rate_decay: Decay = Decay.NONE
    all_clip_norm_val: AboveZero = 10.0
    accumulate: Size = 1
    precision: Precision = Precision.FLOAT32
    recipe: Recipe | None = None

    @property
    def n_directions(self) -> int:
        """2 for a bidirectional model, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def max_filter_width(self) -> int | None:
        """Width of the widest convolution over characters; None for word-level input."""
        return None if self.char_cnn is None else self.char_cnn.max_width

    @property
    def bucket_widths(self) -> tuple[int, ...]:
        """Columns of the length buckets of a batch's words; none for word-level input."""
        return () if self.char_cnn is None else self.char_cnn.bucket_widths

    @property
    def use_sampling(self) -> bool:
        """Whether training samples the softmax; a vocabulary no larger than the sample does not."""
        vocabulary = self.n_tokens_vocab
        return self.sample_softmax and (vocabulary is None or vocabulary > self.n_negative_samples_batch)

    @classmethod
    def from_json(cls, values: object) -> Options:
        """Read the object of an ``options.json``.

        Raises:
            OptionsError: names every problem found, not only the first.
        """
        options, top = _read(values)
        top.refuse_unknown()
        _require_none(top.problems)
        return options

    @classmethod
    def parse(cls, values: object) -> ParsedOptions:
        """Read an object in which there may be more, as users have it in the run directories of bilm-tf.

        Raises:
            OptionsError: as `from_json`.
        """
        options, top = _read(values)
        _require_none(top.problems)
        return ParsedOptions(options, top.unknown)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The values of keys that an ``options.json`` need not have, beside its sections."""
        return {
            field.name: _plain(field.default)
            for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING and field.name != "char_cnn"
        }

    def to_json(self) -> dict[str, Any]:
        """The object written to a run's ``options.json`` (261 characters, as bilm-tf trains)."""
        values: dict[str, Any] = {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in ("lstm", "char_cnn")
        }
        if self.n_train_tokens is None:
            del values["n_train_tokens"]
        return values | self._architecture_json(n_characters=261)

    def to_inference_json(self) -> dict[str, Any]:
        """The object that goes with dumped weights (262 characters), as AllenNLP and bilm-tf read it.

        They know bidirectional models only; for one direction it says so, which
        `bilm.options.file.load_inference_options` understands.
        """
        values = self._architecture_json(n_characters=262)
        return values if self.bidirectional else values | {"bidirectional": False}

    def _architecture_json(self, n_characters: int) -> dict[str, Any]:
        values: dict[str, Any] = {"lstm": dataclasses.asdict(self.lstm)}
        if self.char_cnn is not None:
            values["char_cnn"] = self.char_cnn.to_json(n_characters)
        return values

    def with_values(self, changes: Mapping[str, Any]) -> Options:
        """A copy with dotted keys of the JSON form replaced, ``{"lstm.dim": 512}`` for instance.

        Another optimizer brings its own default learning rate, and no weight decay, since that is
        multiplied by the learning rate.
        """
        values = self.to_json()
        if changes.get("optimizer", self.optimizer.value) != self.optimizer.value:
            del values["learning_rate"], values["weight_decay"]
        for key, value in changes.items():
            *sections, last = key.split(".")
            place = values
            for section in sections:
                inner = place.setdefault(section, {})
                if not isinstance(inner, dict):
                    raise OptionsError(f"{key}: {section} is not a section of the options")
                place = inner
            place[last] = value
        return Options.from_json(values)


class ParsedOptions(NamedTuple):
    """What is in an ``options.json``.

    Attributes:
        options: complete with the defaults of what is missing.
        unknown: unrecognised keys, dotted.
    """

    options: Options
    unknown: list[str]


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.value if isinstance(value, enum.Enum) else value


def _read(values: object) -> tuple[Options, JsonObject]:
    """The options as far as they can be read; they are good for something only if no problem is noted."""
    top = JsonObject("", values)
    cnn = None if top.values.get("char_cnn") is None else read_char_cnn(top.section("char_cnn"))
    options = top.read_as(Options, char_cnn=cnn)
    if "learning_rate" not in top.values:
        options = dataclasses.replace(options, learning_rate=options.optimizer.default_learning_rate)
    top.problems.extend(_contradictions(options))
    return options, top


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise OptionsError("invalid options:\n" + "\n".join(f"  {problem}" for problem in problems))


def _contradictions(options: Options) -> list[str]:
    """Values that are fine alone and wrong together; None stands for those that could not be read."""
    lstm, cnn = options.lstm, options.char_cnn
    problems = []
    if lstm is not None and None not in (lstm.projection_dim, lstm.dim) and lstm.projection_dim > lstm.dim:
        problems.append(
            f"lstm.projection_dim ({lstm.projection_dim}) must not exceed lstm.dim ({lstm.dim}); "
            "make them equal for no projection"
        )
    if cnn is not None and cnn.filters and cnn.max_width > cnn.max_characters_per_token:
        problems.append(
            f"char_cnn.filters: width {cnn.max_width} exceeds "
            f"char_cnn.max_characters_per_token ({cnn.max_characters_per_token})"
        )
    if cnn is not None and options.share_embedding_softmax:
        problems.append("share_embedding_softmax: needs word input, and char_cnn is given")
    if options.temporal_activation_regularization and options.unroll_steps == 1:
        problems.append(
            "temporal_activation_regularization: needs unroll_steps of at least 2: it compares successive "
            "outputs of a window"
        )
    return problems
