"""Hyper-parameters in bilm-tf's ``options.json`` form, validated when read; presets.

bilm-tf's keys keep their names and meaning. Additional keys stand beside them, so bilm-tf can still read the
file. Each field describes its key; ``docs/options.md`` has them in tables.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from bilm.errors import OptionsError, checked
from bilm.io.json_objects import Bounds, Count, JsonObject, Positive, annotations
from bilm.options.parameters import (
    REQUIRED,
    Activation,
    Decay,
    Optimizer,
    Precision,
    Recipe,
    SoftmaxBiasInit,
    SoftmaxRowInit,
    UnicodeForm,
    flag,
    parameter,
)

# Larger than in any model; small enough for the lists of names made before arrays are, and for float32.
_MOST_LAYERS = 1000
_LARGEST = 1 << 20
_LONGEST_WORD = 1 << 12
_HIGHEST = 3.4e38

_GONE = ("type_dropout", "weight_dropout", "weight_averaging")  # options of bilm 0.2.0, off by default

SCHEDULE = ("optimizer", "learning_rate", "warmup_steps", "learning_rate_decay", "weight_decay")
"""Keys that belong together: learning rate and weight decay depend on the optimizer."""

_BUCKET_LENGTHS = (6, 8, 10, 13, 18, 26)

_Highways = Annotated[int, Bounds(least=0, most=_MOST_LAYERS)]
_Layers = Annotated[int, Bounds(least=1, most=_MOST_LAYERS)]
_Size = Annotated[int, Bounds(least=1, most=_LARGEST)]
_Words = Annotated[int, Bounds(least=1, most=(1 << 31) - 1)]  # ids are int32
_Share = Annotated[float, Bounds(least=0, below=1)]
_Factor = Annotated[float, Bounds(least=0, most=_HIGHEST)]
_AboveZero = Annotated[float, Bounds(above=0, most=_HIGHEST)]


class _Checked:
    """Base class of options, which convert and check their values.

    Raises:
        OptionsError: values have another kind, are out of bounds, or contradict each other; lists them.
    """

    def __post_init__(self) -> None:
        fields = JsonObject("", vars(self))
        for name, annotation in annotations(type(self)).items():
            object.__setattr__(self, name, fields.take(name, annotation))
        if problems := fields.problems or [*self.contradictions()]:
            raise OptionsError.listing("invalid options", problems)

    def contradictions(self) -> Iterator[str]:
        """Yield problems between values that are each valid alone."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class CharCNNOptions(_Checked):
    """Hyper-parameters of the character encoder."""

    filters: tuple[tuple[_Size, _Size], ...] = parameter(
        REQUIRED, "pairs of filter width, in characters, and number of filters"
    )
    activation: Activation = parameter(Activation.RELU, "activation of the convolutions")
    embedding_dim: _Size = parameter(16, "size of the character embeddings", key="embedding.dim")
    max_characters_per_token: Annotated[int, Bounds(least=3, most=_LONGEST_WORD)] = parameter(
        50, "bytes read of each word, including its two marks; longer words are truncated"
    )
    n_highway: _Highways = parameter(0, "highway layers after the convolutions")

    @property
    def n_filters(self) -> int:
        """Total number of filters, which is the width of the highway layers."""
        return sum(number for _, number in self.filters)

    @property
    def max_width(self) -> int:
        """Width of the widest filter, in characters."""
        return max(width for width, _ in self.filters)

    @property
    def bucket_widths(self) -> tuple[int, ...]:
        """Widths of the length buckets, ascending; the last is `max_characters_per_token`.

        A word of L characters (word marks included) belongs in the first bucket of at least
        ``min(max_characters_per_token, L + max_width)``. That leaves room for one convolution window entirely
        in the padding, so the maximum over positions is the same as in a full row.
        """
        widths = {min(self.max_characters_per_token, n + self.max_width) for n in _BUCKET_LENGTHS}
        return tuple(sorted(widths | {self.max_characters_per_token}))

    def contradictions(self) -> Iterator[str]:
        """Yield problems between values that are each valid alone."""
        most = self.max_characters_per_token
        if not self.filters:
            yield "filters: expected at least one pair [width, number]"
        elif self.max_width > most:
            yield f"filters: width {self.max_width} exceeds char_cnn.max_characters_per_token ({most})"

    def to_json(self, n_characters: int) -> dict[str, Any]:
        """Return the section ``char_cnn`` of ``options.json``.

        Args:
            n_characters: 261 for training, 262 for inference.
        """
        return {
            "activation": self.activation.value,
            "embedding": {"dim": self.embedding_dim},
            "filters": [list(pair) for pair in self.filters],
            "max_characters_per_token": self.max_characters_per_token,
            "n_characters": n_characters,
            "n_highway": self.n_highway,
        }


@dataclasses.dataclass(frozen=True)
class LSTMOptions(_Checked):
    """Hyper-parameters of the LSTM stack of one direction; ``projection_dim == dim`` means no projection."""

    dim: _Size = parameter(REQUIRED, "units of an LSTM cell")
    projection_dim: _Size = parameter(
        REQUIRED, "units after the projection, and of the word vectors; equal to `lstm.dim` for no projection"
    )
    n_layers: _Layers = parameter(1, "LSTM layers in each direction")
    cell_clip: _Factor | None = parameter(None, "clip the cell state to this; `null` or 0 for no clipping")
    proj_clip: _Factor | None = parameter(
        None, "clip the projected output to this; `null` or 0 for no clipping"
    )
    use_skip_connections: bool = parameter(False, "add the input of each layer but the first to its output")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("cell_clip", "proj_clip"):  # AllenNLP's 0 for no clipping
            object.__setattr__(self, name, getattr(self, name) or None)

    @property
    def use_projection(self) -> bool:
        """True if the cells project their output to fewer dimensions."""
        return self.projection_dim < self.dim

    def contradictions(self) -> Iterator[str]:
        """Yield problems between values that are each valid alone."""
        if self.projection_dim > self.dim:
            sizes = f"projection_dim ({self.projection_dim}) must not exceed lstm.dim ({self.dim})"
            yield f"{sizes}; make them equal for no projection"


@dataclasses.dataclass(frozen=True)
class Options(_Checked):
    """All hyper-parameters of a language model and its training: the keys of ``options.json``.

    ``docs/options.md`` describes the keys.

    Raises:
        OptionsError: values have another kind, are out of bounds, or contradict each other; lists them.

    Example:
        >>> from bilm.options import PRESETS
        >>> options = PRESETS["tiny"].with_values({"lstm.dim": 512, "n_epochs": 5})
        >>> options.lstm.dim, options.char_cnn.n_filters
        (512, 192)
    """

    lstm: LSTMOptions = parameter(REQUIRED, "the LSTM stack of each direction")
    char_cnn: CharCNNOptions | None = parameter(
        None, "the character encoder of words; without it the model reads word ids"
    )
    bidirectional: bool = parameter(
        False,
        "train a forward and a backward language model, which share the word encoder and the softmax. The "
        "default is `true` in the options of dumped weights: with 262 characters, or with only `lstm`, "
        "`char_cnn` and `unicode_form`",
    )
    n_tokens_vocab: _Words | None = parameter(
        None,
        "size of the vocabulary, read from the vocabulary file; a number in a file of options is ignored",
    )
    unicode_form: UnicodeForm | None = parameter(
        None,
        "Unicode's normal form, which words are brought to; `null` to take texts as they are, as bilm-tf. "
        "With a recipe other than `bilm-tf`, a new model takes that of its corpus or vocabulary",
    )
    share_embedding_softmax: bool = parameter(
        False, "use the word embeddings as softmax weights; for word-level input only"
    )
    n_epochs: Positive = flag(10, "passes over the text")
    batch_size: _Size = flag(128, "rows of a batch on each GPU")
    unroll_steps: _Size = parameter(
        20, "tokens of each row in a batch: the window of truncated backpropagation through time"
    )
    n_train_tokens: Positive | None = flag(
        None,
        "length of an epoch in tokens, counted in the text. `--n-train-tokens` overrides the count; a number "
        "in the file is ignored",
        shown="counted in the text",
    )
    learning_rate: _AboveZero | None = flag(
        None,
        "step size of the optimizer; by default the optimizer's own: "
        + ", ".join(f"`{choice.value}` {choice.default_learning_rate:g}" for choice in Optimizer),
    )
    dropout: _Share = flag(0.1, "dropout rate of the inputs of each LSTM layer and of the output of the last")
    all_clip_norm_val: _AboveZero = parameter(10.0, "clip the global norm of the gradients to this")
    sample_softmax: bool = parameter(True, "train with a sampled softmax; testing always uses the full one")
    n_negative_samples_batch: _Words = parameter(
        8192,
        "classes sampled for the softmax in each batch; a vocabulary no larger than this is trained with "
        "the full softmax",
    )
    accumulate: _Size = flag(
        1,
        "batches whose gradients are accumulated for one update, in the memory of one batch; each has its "
        "own rows and LSTM states",
    )
    optimizer: Optimizer = flag(
        Optimizer.ADAGRAD,
        "optimizer; bilm-tf uses adagrad. [Recipes](training.md#recipes) use `muon`. `adagrad`, `muon` and "
        "`sgd` update only the softmax rows of a step; the others, Keras's with their default settings, all",
    )
    warmup_steps: Count = flag(0, "steps over which the learning rate rises linearly from zero")
    learning_rate_decay: Decay = flag(
        Decay.NONE,
        "decay of the learning rate after the warm-up. `linear` and `cosine` reach zero at the end of "
        "the run",
    )
    precision: Precision = flag(
        Precision.FLOAT32,
        "data type of the factors of matrix products in training; weights and losses stay float32. `tf32` "
        "needs an NVIDIA GPU, Ampere or later, and is float32 elsewhere; with `float16` the loss is scaled",
    )
    recipe: Recipe | None = parameter(
        None, "the [recipe](training.md#recipes) used to train the run. Recorded only; set it with `--recipe`"
    )
    variational_dropout: bool = parameter(
        True, "use one dropout mask for a whole window; `false` draws a new mask at each step, as bilm-tf"
    )
    passage_tokens: Count = parameter(
        0,
        "shuffle [passages](recipes.md#passages) of consecutive lines with about this many tokens; 0 for "
        "single lines",
    )
    word_dropout: _Share = parameter(0.0, "dropout rate of whole input tokens")
    activation_regularization: _Factor = parameter(
        0.0, "weight in the training loss of the mean square of the top layer's outputs, after dropout"
    )
    temporal_activation_regularization: _Factor = parameter(
        0.0,
        "weight in the training loss of the mean square of the difference between the top layer's outputs "
        "at successive tokens",
    )
    word_vector_tying: _Factor = parameter(
        0.0,
        "weight in the training loss of [1 - cosine similarity](recipes.md#word-vectors-and-softmax-rows) "
        "between the vectors of words and their softmax rows, times the share of the highest learning rate "
        "that the step has; it moves the vectors of words only. No effect with word input",
    )
    softmax_row_tying: _Factor = parameter(0.0, "as `word_vector_tying`, but moves the softmax rows only")
    weight_decay: _Factor = flag(0.0, "weight decay per step, as a factor of the learning rate")
    softmax_bias_init: SoftmaxBiasInit = parameter(
        SoftmaxBiasInit.UNIGRAM,
        "initial softmax biases: `unigram` for the log counts of the words in the corpus, `zeros` as bilm-tf",
    )
    softmax_row_init: SoftmaxRowInit = parameter(
        SoftmaxRowInit.RANDOM,
        "initial softmax rows: `random` as bilm-tf; `cooccurrence` to be alike for words with the same "
        "[neighbours](recipes.md#how-the-softmax-starts) in the corpus. Tied rows stay random",
    )
    softmax_init_scale: _Factor = parameter(
        0.1, "scale of random softmax rows: standard deviation times sqrt(`projection_dim`); `1.0` as bilm-tf"
    )

    @property
    def n_directions(self) -> int:
        """2 for a bidirectional model, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def step_tokens(self) -> int:
        """Tokens that a replica reads for one update, in one direction."""
        return self.batch_size * self.unroll_steps * self.accumulate

    @property
    def step_size(self) -> float:
        """The learning rate before its schedule: `learning_rate`, or by default the optimizer's own."""
        default = self.optimizer.default_learning_rate
        return default if self.learning_rate is None else self.learning_rate

    @property
    def use_sampling(self) -> bool:
        """True if training samples the softmax, which needs a vocabulary larger than the sample."""
        vocabulary = self.n_tokens_vocab
        return self.sample_softmax and (vocabulary is None or vocabulary > self.n_negative_samples_batch)

    @classmethod
    def from_json(cls, values: object) -> "Options":
        """Make options of the decoded object of an ``options.json``.

        Raises:
            OptionsError: values are invalid, unknown or missing; lists all problems. Contradictions between
                values are listed if each value is valid alone.
        """
        return cls.parse(values, refuse_unknown=True)[0]

    @classmethod
    def parse(cls, values: object, refuse_unknown: bool = False) -> "tuple[Options, list[str]]":
        """Make options of a decoded object, as `from_json`; return them and the dotted names of unknown keys.

        Raises:
            OptionsError: as `from_json`.
        """
        top = JsonObject("", values)
        top.values = {key: value for key, value in top.values.items() if value or key not in _GONE}
        cnn = None if top.values.get("char_cnn") is None else _read_char_cnn(top.section("char_cnn"))
        options = top.read_as(cls, char_cnn=cnn, lstm=_read_lstm(top.section("lstm")))
        if refuse_unknown:
            top.refuse_unknown()
        if top.problems:
            raise OptionsError.listing("invalid options", top.problems)
        return options, top.unknown

    def contradictions(self) -> Iterator[str]:
        """Yield problems between values that are each valid alone."""
        if self.char_cnn is not None and self.share_embedding_softmax:
            yield "share_embedding_softmax: needs word input, and char_cnn is given"

    def to_json(self) -> dict[str, Any]:
        """Return the object of a run's ``options.json`` (261 characters, as bilm-tf in training)."""
        network = ("lstm", "char_cnn", "unicode_form")
        values = {name: _plain(value) for name, value in vars(self).items() if name not in network}
        values["learning_rate"] = self.step_size  # a number, as bilm-tf reads it
        if self.n_train_tokens is None:
            del values["n_train_tokens"]
        return values | self._network_json(n_characters=261)

    def to_inference_json(self) -> dict[str, Any]:
        """Return the object of dumped weights' ``options.json``: 262 characters, as in AllenNLP and bilm-tf.

        They read bidirectional models only. A model of one direction adds ``"bidirectional": false``, which
        `bilm.options.options_file.load_inference_options` reads.
        """
        values = self._network_json(n_characters=262)
        return values if self.bidirectional else values | {"bidirectional": False}

    def _network_json(self, n_characters: int) -> dict[str, Any]:
        values: dict[str, Any] = {"lstm": dataclasses.asdict(self.lstm)}
        if self.char_cnn is not None:
            values["char_cnn"] = self.char_cnn.to_json(n_characters)
        if self.unicode_form is not None:
            values["unicode_form"] = self.unicode_form.value
        return values

    @checked
    def with_values(self, changes: Mapping[str, Any]) -> "Options":
        """Return a copy with some keys replaced: ``{"lstm.dim": 512}``, or ``{"lstm": {"dim": 512}}``.

        The other keys of a section keep their values.
        A change of the optimizer resets the learning rate, its schedule and the weight decay.
        """
        values = self.to_json() | {"learning_rate": self.learning_rate}
        if changes.get("optimizer", self.optimizer.value) != self.optimizer.value:
            for key in SCHEDULE[1:]:
                del values[key]
        for key, value in dotted(changes):
            *sections, last = key.split(".")
            place = values
            for section in sections:
                place = place.setdefault(section, {})
                if not isinstance(place, dict):
                    raise OptionsError(f"{key}: {section} is not a section of the options")
            place[last] = value
        return Options.from_json(values)


def dotted(values: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values, also those of nested objects."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.value if isinstance(value, enum.Enum) else value


def _read_lstm(section: JsonObject) -> LSTMOptions:
    """Read the section of the LSTM, with the "true" of published files."""
    if section.values.get("use_skip_connections") == "true":
        section.values["use_skip_connections"] = True
    return section.read_as(LSTMOptions)


def _read_char_cnn(section: JsonObject) -> CharCNNOptions:
    """Read the section of the character encoder; problems are recorded in it, see `JsonObject`."""
    n_characters = section.take("n_characters", int, 261)
    if n_characters not in (261, 262):
        section.problems.append(
            f"char_cnn.n_characters: must be 261 (training) or 262 (inference), got {n_characters}"
        )
    embedding_dim = section.section("embedding").take("dim", _Size)
    return section.read_as(CharCNNOptions, embedding_dim=embedding_dim)


_PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


_LAPTOP_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 192), (6, 160), (7, 160))
_TINY_FILTERS = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 64))


def _preset(
    lstm: tuple[int, int], filters: tuple[tuple[int, int], ...], n_highway: int = 1, **others: Any
) -> Options:
    """Return options of a preset; `lstm` has its units and those after the projection."""
    return Options(
        LSTMOptions(*lstm, n_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True),
        CharCNNOptions(filters, n_highway=n_highway),
        bidirectional=True,
        **others,
    )


PRESETS: Mapping[str, Options] = {
    "laptop": _preset((320, 256), _LAPTOP_FILTERS, batch_size=64, n_negative_samples_batch=2048),
    "original": _preset((4096, 512), _PUBLISHED_FILTERS, n_highway=2),
    "medium": _preset((2048, 256), _PUBLISHED_FILTERS),
    "small": _preset((1024, 128), _PUBLISHED_FILTERS),
    "tiny": _preset((256, 64), _TINY_FILTERS, batch_size=32, n_epochs=2),
}
"""Complete options by name: one for a laptop, the published models, and a small one for experiments."""
