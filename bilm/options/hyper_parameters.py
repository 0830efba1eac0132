"""Hyper-parameters: typed, frozen, self-validating, in bilm-tf's exact ``options.json`` form; presets.

The keys of the reference keep their names and meaning. Keys of our own stand beside them, so that bilm-tf can
still read the file. Each key is described in its field; ``docs/options.md`` has them in tables.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Annotated, Any

from bilm.errors import OptionsError
from bilm.io.json import Bounds, Count, JsonObject, is_kind
from bilm.io.messages import shown
from bilm.options.parameters import (
    REQUIRED,
    Activation,
    Decay,
    Optimizer,
    Precision,
    Recipe,
    SoftmaxBiasInit,
    flag,
    parameter,
)

# Far beyond every model, and little enough for what is made of them before any array is: lists of names,
# numbers of float32.
_MOST_LAYERS = 1000
_LARGEST = 1 << 20
_HIGHEST = 3.4e38

_BUCKET_LENGTHS = (6, 8, 10, 13, 18, 26)

_Size = Annotated[int, Bounds(least=1, most=_LARGEST)]
_Words = Annotated[int, Bounds(least=1, most=(1 << 31) - 1)]  # ids have 32 bits
_Positive = Annotated[int, Bounds(least=1)]
_Share = Annotated[float, Bounds(least=0, below=1)]
_Factor = Annotated[float, Bounds(least=0, most=_HIGHEST)]
_AboveZero = Annotated[float, Bounds(above=0, most=_HIGHEST)]


def length_buckets(max_characters: int, max_filter_width: int) -> tuple[int, ...]:
    """Return the widths of the length buckets, ascending; the last is `max_characters`.

    A word of L characters (word marks included) belongs in the first bucket of at least
    ``min(max_characters, L + max_filter_width)``: wide enough for a convolution window that lies in
    the padding wholly, so that the maximum over positions is the same as in a full row.

    Args:
        max_characters: characters of a full row.
        max_filter_width: of the widest filter.
    """
    widths = {min(max_characters, length + max_filter_width) for length in _BUCKET_LENGTHS}
    return tuple(sorted(widths | {max_characters}))


@dataclasses.dataclass(frozen=True)
class CharCNNOptions:
    """The character encoder: ``filters`` are (width, number) pairs, widths in characters."""

    filters: tuple[tuple[int, int], ...] = parameter(
        REQUIRED, "pairs of width, in characters, and number of filters"
    )
    activation: Activation = parameter(Activation.RELU, "activation of the convolutions")
    embedding_dim: int = parameter(16, "size of the character embeddings", key="embedding.dim")
    max_characters_per_token: Annotated[int, Bounds(least=3, most=_LARGEST)] = parameter(
        50, "bytes of a word that are read, including its two marks; longer words are cut off"
    )
    n_highway: int = parameter(0, "highway layers after the convolutions")

    @property
    def n_filters(self) -> int:
        """Number of filters of all widths: the width of the highway layers."""
        return sum(number for _, number in self.filters)

    @property
    def max_width(self) -> int:
        """Width of the widest filter, in characters."""
        return max(width for width, _ in self.filters)

    @property
    def bucket_widths(self) -> tuple[int, ...]:
        """Columns of the length buckets of its words, see `length_buckets`."""
        return length_buckets(self.max_characters_per_token, self.max_width)

    def contradictions(self) -> list[str]:
        """Values that are fine alone and wrong together."""
        if self.max_width <= self.max_characters_per_token:
            return []
        most = self.max_characters_per_token
        return [f"filters: width {self.max_width} exceeds char_cnn.max_characters_per_token ({most})"]

    def to_json(self, n_characters: int) -> dict[str, Any]:
        """Its section of ``options.json``.

        Args:
            n_characters: what the section says of them: 261 in training, 262 for inference.
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
class LSTMOptions:
    """The LSTM stack of one direction; without a projection ``projection_dim == dim``."""

    dim: _Size = parameter(REQUIRED, "units of a cell")
    projection_dim: _Size = parameter(
        REQUIRED, "units after the projection, and of the word vectors; equal to `lstm.dim` for no projection"
    )
    n_layers: Annotated[int, Bounds(least=1, most=_MOST_LAYERS)] = parameter(
        1, "LSTM layers in each direction"
    )
    cell_clip: _AboveZero | None = parameter(None, "bound of the cell state; `null` for none")
    proj_clip: _AboveZero | None = parameter(None, "bound of the projected output; `null` for none")
    use_skip_connections: bool = parameter(False, "add the input of each layer but the first to its output")

    @property
    def use_projection(self) -> bool:
        """Whether the cells project their output to fewer dimensions."""
        return self.projection_dim < self.dim

    def contradictions(self) -> list[str]:
        """Values that are fine alone and wrong together."""
        if self.projection_dim <= self.dim:
            return []
        return [
            f"projection_dim ({self.projection_dim}) must not exceed lstm.dim ({self.dim}); make them equal "
            "for no projection"
        ]


@dataclasses.dataclass(frozen=True)
class Options:
    """All hyper-parameters of one language model and its training.

    The fields are the keys of ``options.json``, described in ``docs/options.md``.

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

    lstm: LSTMOptions = parameter(REQUIRED, "the LSTMs of a direction")
    char_cnn: CharCNNOptions | None = parameter(
        None, "how words are read by their characters; without it the model reads word ids"
    )
    bidirectional: bool = parameter(
        False,
        "a forward and a backward language model, which share the word encoder and the softmax. `true` if "
        "missing in a file that goes with dumped weights: one with 262 characters, or with nothing but "
        "`lstm` and `char_cnn`",
    )
    n_tokens_vocab: _Words | None = parameter(
        None, "size of the vocabulary; taken from the vocabulary file, which must agree with it"
    )
    share_embedding_softmax: bool = parameter(
        False, "use the word embeddings as softmax weights; for word-level input only"
    )
    n_epochs: _Positive = flag(10, "passes over the text")
    batch_size: _Size = flag(
        128,
        "rows of a batch, on each GPU. With `accumulate`, of each of the batches that make an update",
    )
    unroll_steps: _Size = parameter(
        20, "tokens of each row in a batch: the window of truncated backpropagation through time"
    )
    n_train_tokens: _Positive | None = flag(
        None,
        "length of an epoch in tokens. Counted; a number in the file is ignored, `--n-train-tokens` "
        "overrides the count",
        shown="counted in the text",
    )
    learning_rate: _AboveZero = flag(
        0.2,
        "step size of the optimizer. The default depends on the optimizer: "
        + ", ".join(f"{one.default_learning_rate:g} for `{one.value}`" for one in Optimizer),
    )
    dropout: _Share = flag(
        0.1, "rate of dropout on the inputs of each LSTM layer and on the output of the last"
    )
    all_clip_norm_val: _AboveZero = parameter(10.0, "bound of the global norm of the gradients")
    sample_softmax: bool = parameter(True, "train with a sampled softmax; testing always uses the full one")
    n_negative_samples_batch: _Words = parameter(
        8192,
        "classes sampled for the softmax in each batch; a vocabulary no larger than this trains with the "
        "full softmax",
    )
    accumulate: _Size = flag(
        1,
        "batches whose gradients make one update, like one larger batch. It takes the memory of one; each "
        "has rows and LSTM states of its own",
    )
    optimizer: Optimizer = flag(
        Optimizer.ADAGRAD,
        "optimizer; bilm-tf's is adagrad. The recipes' is `muon` (see [training](training.md#recipes)). "
        "`adagrad`, `muon` and `adam` update only the softmax rows of a step; the others, with Keras's "
        "default settings, update all rows. A run trained with another optimizer than Adagrad can be "
        "tested in bilm-tf, but not restarted there",
    )
    warmup_steps: Count = flag(0, "steps over which the learning rate rises linearly from zero")
    learning_rate_decay: Decay = flag(
        Decay.NONE,
        "how the learning rate falls after the warm-up. `linear` and `cosine` reach zero at the end of "
        "the run",
    )
    precision: Precision = flag(
        Precision.FLOAT32,
        "data type of matrix products in training; weights, softmax and losses stay float32. `tf32` is "
        "for NVIDIA GPUs since Ampere, and float32 elsewhere; with `float16` the loss is scaled",
    )
    recipe: Recipe | None = parameter(
        None,
        "the [recipe](training.md#recipes) that the run was trained with. For the record: `--recipe` chooses",
    )
    variational_dropout: bool = parameter(
        True, "one dropout mask for a whole window; `false` for a new mask at each step, as bilm-tf"
    )
    word_dropout: _Share = parameter(0.0, "probability of dropping a whole input token")
    type_dropout: _Share = flag(
        0.0,
        "rate at which words are dropped from the input, each everywhere in a window. Sentence marks are "
        "words. The embedding dropout of Gal and Ghahramani 2016 (arXiv:1512.05287), section 4.2",
    )
    weight_dropout: _Share = flag(
        0.0,
        "dropout rate of the recurrent weights of the LSTMs. A weight between the hidden state and the "
        "gates is dropped for a whole window: DropConnect, as in Merity et al. 2018 (arXiv:1708.02182)",
    )
    activation_regularization: _Factor = parameter(
        0.0,
        "factor of the mean square of the top layer's outputs, after dropout, in what training minimises. "
        "Alpha of Merity et al. 2017 (arXiv:1708.01009); see [Little text](recipes.md#little-text)",
    )
    temporal_activation_regularization: _Factor = parameter(
        0.0,
        "factor of the mean square of the difference between the top layer's outputs for successive "
        "tokens, in what training minimises. Beta of the same paper",
    )
    weight_decay: _Factor = flag(
        0.0,
        "weight decay per step, as a factor of the learning rate. After each update, the weights that it "
        "changed are multiplied by 1 - learning rate * `weight_decay`; biases and character embeddings "
        "are not",
    )
    weight_averaging: _Share = flag(
        0.0,
        "decay of the moving average of the weights, such as 0.999; 0 for none. The run keeps the "
        "averages, which are used after training. See [Little text](recipes.md#little-text)",
    )
    softmax_bias_init: SoftmaxBiasInit = parameter(
        SoftmaxBiasInit.UNIGRAM,
        "where the softmax biases start: `unigram` at the log counts of the corpus, `zeros` as bilm-tf",
    )
    softmax_init_scale: _Factor = parameter(
        0.1,
        "factor on the initial standard deviation of the softmax rows, 1/sqrt(`projection_dim`); `1.0` as "
        "bilm-tf",
    )

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
            OptionsError: names every problem found, not only the first; values that contradict each other
                are named where each is right by itself.
        """
        return cls.parse(values, refuse_unknown=True)[0]

    @classmethod
    def parse(cls, values: object, refuse_unknown: bool = False) -> tuple[Options, list[str]]:
        """As `from_json`, of an object in which there may be more keys: the options, and those keys, dotted.

        Raises:
            OptionsError: as `from_json`.
        """
        top = JsonObject("", values)
        cnn = None if top.values.get("char_cnn") is None else _read_char_cnn(top.section("char_cnn"))
        options = top.read_as(cls, char_cnn=cnn)
        if refuse_unknown:
            top.refuse_unknown()
        if top.problems:
            raise OptionsError("invalid options:\n" + "\n".join(f"  {problem}" for problem in top.problems))
        if "learning_rate" not in top.values:
            options = dataclasses.replace(options, learning_rate=options.optimizer.default_learning_rate)
        return options, top.unknown

    def contradictions(self) -> list[str]:
        """Values that are fine alone and wrong together."""
        problems = []
        if self.char_cnn is not None and self.share_embedding_softmax:
            problems.append("share_embedding_softmax: needs word input, and char_cnn is given")
        if self.temporal_activation_regularization and self.unroll_steps == 1:
            problems.append(
                "temporal_activation_regularization: needs unroll_steps of at least 2: it compares "
                "successive outputs of a window"
            )
        return problems

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The values of keys that an ``options.json`` need not have, beside its sections."""
        return {
            one.name: _plain(one.default)
            for one in dataclasses.fields(cls)
            if one.default is not dataclasses.MISSING and one.name != "char_cnn"
        }

    def to_json(self) -> dict[str, Any]:
        """The object written to a run's ``options.json`` (261 characters, as bilm-tf trains)."""
        values: dict[str, Any] = {
            one.name: _plain(getattr(self, one.name))
            for one in dataclasses.fields(self)
            if one.name not in ("lstm", "char_cnn")
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


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.value if isinstance(value, enum.Enum) else value


def _read_char_cnn(section: JsonObject) -> CharCNNOptions:
    """Read the section of the character encoder; each problem is noted, as in `JsonObject`."""
    n_characters = section.take("n_characters", int, 261)
    if n_characters not in (261, 262):
        section.problems.append(
            f"char_cnn.n_characters: must be 261 (training) or 262 (inference), got {n_characters}"
        )
    filters = section.take("filters", list)
    are_pairs = bool(filters) and all(map(_is_filter, filters))
    if filters is not None and not are_pairs:
        section.problems.append(
            f"char_cnn.filters: expected pairs [width, number], got {shown(filters)}; "
            f"each number from 1 to {_LARGEST}"
        )
    return section.read_as(
        CharCNNOptions,
        filters=tuple(map(tuple, filters)) if are_pairs else ((1, 1),),
        embedding_dim=section.section("embedding").take("dim", _Size),
        n_highway=section.take("n_highway", Annotated[int, Bounds(least=0, most=_MOST_LAYERS)] | None, 0),
    )


def _is_filter(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(is_kind(n, int) and 1 <= n <= _LARGEST for n in pair)
    )


_PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _published(dim: int, projection_dim: int, n_highway: int) -> Options:
    return Options(
        lstm=LSTMOptions(
            dim, projection_dim, n_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True
        ),
        char_cnn=CharCNNOptions(_PUBLISHED_FILTERS, n_highway=n_highway),
        bidirectional=True,
    )


_SMALL_CNN = CharCNNOptions(((1, 16), (2, 16), (3, 32), (4, 64), (5, 64)), n_highway=1)

PRESETS: Mapping[str, Options] = {
    "laptop": dataclasses.replace(
        _published(512, 128, n_highway=1), char_cnn=_SMALL_CNN, batch_size=64, n_negative_samples_batch=2048
    ),
    "original": _published(4096, 512, n_highway=2),
    "medium": _published(2048, 256, n_highway=1),
    "small": _published(1024, 128, n_highway=1),
    "tiny": dataclasses.replace(
        _published(256, 64, n_highway=1), char_cnn=_SMALL_CNN, batch_size=32, n_epochs=2
    ),
}
"""Complete options by name: one for a laptop, the paper's published shapes, and one for trying things out."""
