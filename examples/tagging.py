"""Taggers with and without ELMo, which `pos_tagging.py` and `ner.py` train: models, training and tables.

A tagger is a bidirectional LSTM that predicts the tag of each word from

- its own word embeddings, learned from scratch, without characters;
- its own word embeddings and a small CNN over characters (Ma and Hovy 2016);
- its own word embeddings and the biLM's word vectors: layer 0, which sees characters, but no context;
- its own word embeddings and ELMo, a learned mix of all layers of the biLM;
- the same, with a second mix of ELMo at the LSTM's output.

The biLM is frozen and its layers are computed once; dropout on ELMo and the L2 term of the mixes follow
Peters et al. 2018. A training set depends only on its fraction and seed. The best round on dev is tested.
"""

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
import keras
import numpy as np
import tensorflow as tf

from bilm import ElmoEmbedder, ScalarMix
from bilm.cli.flags import embedding_model
from bilm.errors import DataError
from bilm.io.atomic import write
from bilm.io.outputs import check_output
from bilm.run_directory.model_source import ModelArguments

MIX_L2 = 0.001


@dataclass(frozen=True)
class Elmo:
    """The layers of the biLM that a tagger uses, one or all (None), and the L2 term of their mix."""

    layer: int | None = None
    l2: float = MIX_L2


@dataclass(frozen=True)
class Variant:
    """A tagger: its name in the tables, and its inputs besides word embeddings."""

    name: str
    has_characters: bool = False
    at_input: Elmo | None = None
    at_output: Elmo | None = None

    @property
    def uses_layers(self) -> bool:
        """Whether the tagger reads the biLM's layers."""
        return self.at_input is not None or self.at_output is not None


VARIANTS = {
    "own": Variant("own embeddings"),
    "own-characters": Variant("own embeddings and characters", has_characters=True),
    "characters": Variant("+ the biLM's word vectors", at_input=Elmo(0)),
    "input": Variant("+ ELMo at the input", at_input=Elmo()),
    "both": Variant("+ ELMo at input and output", at_input=Elmo(), at_output=Elmo()),
}
ABLATIONS = {
    "input": VARIANTS["input"],
    "output": Variant("+ ELMo at the output", at_output=Elmo()),
    "both": VARIANTS["both"],
    "even": Variant("+ all layers, L2 term 1, at the input", at_input=Elmo(l2=1.0)),
    "layer-1": Variant("+ LSTM layer 1 alone, at the input", at_input=Elmo(1)),
    "layer-2": Variant("+ LSTM layer 2 (the top) alone, at the input", at_input=Elmo(2)),
}
ALL_VARIANTS = VARIANTS | ABLATIONS
PADDING, UNKNOWN = 0, 1  # word ids
TEST_ROWS = 128
EMBEDDING_DIM, LSTM_DIM = 100, 128
DROPOUT = 0.5
CHARACTERS, CHARACTER_DIM, FILTERS = 20, 30, 30  # bytes of a word that are read; sizes of Ma and Hovy
LEARNING_RATE = 0.002
ROUND_STEPS = 50  # a round is one pass over the sentences, but at least this many batches


@dataclass(frozen=True, eq=False)
class Sentence:
    """A tagged sentence, with the biLM's layers as float16 (layers, words, dim)."""

    words: list[str]
    tags: list[str]
    layers: np.ndarray | None = None


Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Task:
    """A task: its file format, and its score between 0 and 1.

    Attributes:
        file_format: name of the format.
        read: reads a file.
        measure: name of the score.
        score: compares tags with predicted tags, by sentence; its third argument marks the words that count.
    """

    file_format: str
    read: Callable[[Path], list[Sentence]]
    measure: str
    score: Callable[[Tags, Tags, Sequence[Sequence[bool]]], float]


# --- the data ---------------------------------------------------------------------------------------


def with_layers(sentences: list[Sentence], embedder: ElmoEmbedder) -> list[Sentence]:
    """Add the layers of the biLM to sentences."""
    layers = embedder.embed_sentences(sentence.words for sentence in sentences)
    return [
        Sentence(sentence.words, sentence.tags, own.astype(np.float16))
        for sentence, own in zip(sentences, layers, strict=True)
    ]


class Batches:
    """Padded batches of sentences of similar lengths, for `fit` and `evaluate`.

    Args:
        train: training sentences; their words are the tagger's vocabulary.
        tags: all tags.
        variant: tagger that reads the batches.
        batch_size: training sentences per batch.
    """

    def __init__(
        self, train: Sequence[Sentence], tags: Sequence[str], variant: Variant, batch_size: int = 32
    ) -> None:
        self.batch_size = batch_size
        self.variant = variant
        counts = Counter(word for sentence in train for word in sentence.words)
        self.word_ids = {word: i for i, word in enumerate(counts, start=UNKNOWN + 1)}
        self.rare = np.array([True] * (UNKNOWN + 1) + [counts[word] == 1 for word in self.word_ids])
        self.tag_ids = {tag: i for i, tag in enumerate(tags)}

    def make(self, sentences: Sequence[Sentence]) -> tuple[Any, ...]:
        """Make a batch: inputs, tags (rows, words) and weights of the words, 0 for padding."""
        shape = len(sentences), max(len(sentence.words) for sentence in sentences)
        words, tags = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, sentence in enumerate(sentences):
            n = len(sentence.words)
            words[row, :n] = [self.word_ids.get(word, UNKNOWN) for word in sentence.words]
            tags[row, :n] = [self.tag_ids[tag] for tag in sentence.tags]
        inputs: list[np.ndarray] = [words]
        if self.variant.has_characters:
            inputs.append(_characters(sentences, shape))
        if self.variant.uses_layers:
            inputs.append(_layers(sentences, shape))
        return tuple(inputs), tags, (words != PADDING).astype(np.float32)

    def training(self, sentences: Sequence[Sentence], rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
        """Yield random batches endlessly; words that occur once become unknown half of the time."""
        lengths = np.array([len(sentence.words) for sentence in sentences])
        while True:
            order = np.argsort(lengths + rng.uniform(0, 3, len(lengths)))
            groups = np.array_split(order, -(-len(order) // self.batch_size))
            for i in rng.permutation(len(groups)):
                (words, *others), tags, weights = self.make([sentences[k] for k in groups[i]])
                forgotten = self.rare[words] & (words != PADDING) & (rng.random(words.shape) < 0.5)
                yield (np.where(forgotten, UNKNOWN, words), *others), tags, weights

    def dataset(self, sentences: Sequence[Sentence], rng: np.random.Generator) -> tf.data.Dataset:
        """Make an endless dataset of `training`, for sentences of any length."""
        inputs = [tf.TensorSpec([None, None], tf.int32)]
        if self.variant.has_characters:
            inputs.append(tf.TensorSpec([None, None, CHARACTERS], tf.int32))
        if self.variant.uses_layers:
            inputs.append(tf.TensorSpec([None] * 4, tf.float16))
        targets = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float32)
        dataset = tf.data.Dataset.from_generator(
            lambda: self.training(sentences, rng), output_signature=(tuple(inputs), *targets)
        )
        return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)).prefetch(
            4
        )

    def predict(self, model: keras.Model, sentences: Sequence[Sentence]) -> list[list[str]]:
        """Return the most probable tags of sentences."""
        names = list(self.tag_ids)
        by_length = sorted(range(len(sentences)), key=lambda i: len(sentences[i].words))
        tags: dict[int, list[str]] = {}
        for start in range(0, len(by_length), TEST_ROWS):
            rows = by_length[start : start + TEST_ROWS]
            inputs, _, _ = self.make([sentences[i] for i in rows])
            for i, best in zip(rows, model.predict_on_batch(inputs).argmax(axis=-1), strict=True):
                tags[i] = [names[tag] for tag in best[: len(sentences[i].words)]]
        return [tags[i] for i in range(len(sentences))]


def _characters(sentences: Sequence[Sentence], shape: tuple[int, int]) -> np.ndarray:
    """Encode the first bytes of each word, counted from 1; 0 is padding."""
    characters = np.zeros((*shape, CHARACTERS), np.int32)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence.words):
            spelling = np.frombuffer(word.encode()[:CHARACTERS], np.uint8)
            characters[row, column, : len(spelling)] = spelling.astype(np.int32) + 1
    return characters


def _layers(sentences: Sequence[Sentence], shape: tuple[int, int]) -> np.ndarray:
    """Stack the biLM's layers as (rows, layers, words, dim), padded with zeros."""
    n_layers, _, dim = sentences[0].layers.shape
    layers = np.zeros((shape[0], n_layers, shape[1], dim), np.float16)
    for row, sentence in enumerate(sentences):
        layers[row, :, : len(sentence.words)] = sentence.layers
    return layers


# --- the tagger -------------------------------------------------------------------------------------


def build_tagger(variant: Variant, n_words: int, n_tags: int, n_layers: int, elmo_dim: int) -> keras.Model:
    """Build a bidirectional LSTM over its own embeddings and the inputs of `variant`."""
    words = keras.Input((None,), dtype="int32", name="words")
    inputs = [words]
    mask = keras.ops.not_equal(words, PADDING)
    vectors = keras.layers.Dropout(DROPOUT)(keras.layers.Embedding(n_words, EMBEDDING_DIM)(words))
    if variant.has_characters:
        inputs.append(keras.Input((None, CHARACTERS), dtype="int32", name="characters"))
        vectors = _beside(vectors, _spelling(inputs[-1]))
    if variant.uses_layers:
        inputs.append(keras.Input((n_layers, None, elmo_dim), dtype="float16", name="layers"))

    def add_elmo(hidden: Any, elmo: Elmo | None, name: str) -> Any:  # noqa: ANN401
        if elmo is None:
            return hidden
        if elmo.layer is not None:
            return _beside(hidden, keras.ops.cast(inputs[-1][:, elmo.layer], "float32"))
        return _beside(hidden, ScalarMix(l2_coef=elmo.l2, name=name)(inputs[-1]))

    vectors = add_elmo(vectors, variant.at_input, "mix_at_input")
    lstm = keras.layers.LSTM(LSTM_DIM, return_sequences=True)
    hidden = keras.layers.Dropout(DROPOUT)(keras.layers.Bidirectional(lstm)(vectors, mask=mask))
    tags = keras.layers.Dense(n_tags)(add_elmo(hidden, variant.at_output, "mix_at_output"))
    model = keras.Model(inputs, tags)
    model.compile(
        keras.optimizers.Adam(LEARNING_RATE, global_clipnorm=5.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        jit_compile=False,  # compiling would be repeated for each sentence length
    )
    return model


def _spelling(characters: Any) -> Any:  # noqa: ANN401
    """Apply filters to characters (rows, words, characters), with max pooling over each word."""
    letters = keras.layers.Embedding(257, CHARACTER_DIM)(characters)
    features = keras.layers.Conv2D(FILTERS, (1, 3), padding="same", activation="relu")(letters)
    return keras.ops.max(features, axis=2)


def _beside(hidden: Any, elmo: Any) -> Any:  # noqa: ANN401
    """Concatenate two vectors of each word, with dropout on the second."""
    return keras.layers.Concatenate()([hidden, keras.layers.Dropout(DROPOUT)(elmo)])


def mixes_of(model: keras.Model) -> dict[str, dict[str, Any]]:
    """Return the learned mixes of a tagger: the shares of the layers, which sum to 1, and the scale."""
    mixes = [layer for layer in model.layers if isinstance(layer, ScalarMix)]
    return {
        mix.name: {
            "shares": keras.ops.softmax(mix.layer_weights).numpy().tolist(),
            "gamma": float(mix.gamma.numpy()[0]),
        }
        for mix in mixes
    }


@dataclass(frozen=True)
class Result:
    """The result of a tagger: scores between 0 and 1, `test_unknown` on words not in training, and mixes."""

    variant: str
    fraction: float
    seed: int
    n_sentences: int
    rounds: int
    seconds: float
    dev: float
    test: float
    test_unknown: float
    mixes: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Settings:
    """Settings of the training: sentences per batch, maximum rounds, and patience in rounds."""

    batch_size: int
    max_rounds: int
    patience: int


@dataclass(frozen=True, eq=False)
class Data:
    """The three parts of the data."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]

    def tags(self) -> list[str]:
        """All tags, in alphabetical order."""
        parts = (self.train, self.dev, self.test)
        return sorted({tag for part in parts for sentence in part for tag in sentence.tags})


def train_tagger(
    task: Task, data: Data, variant: str, fraction: float, seed: int, settings: Settings
) -> Result:
    """Train a tagger on a fraction of the sentences until dev stops improving, and test its best round."""
    started = time.monotonic()
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(data.train))[: max(1, round(fraction * len(data.train)))]
    train = [data.train[i] for i in chosen]
    tagger = ALL_VARIANTS[variant]
    batches = Batches(train, data.tags(), tagger, settings.batch_size)
    n_layers, _, dim = train[0].layers.shape
    if tagger.at_input and n_layers <= (tagger.at_input.layer or 0):
        raise DataError(f"{variant}: the biLM has no such layer, but the layers 0 to {n_layers - 1}")
    model = build_tagger(tagger, len(batches.rare), len(batches.tag_ids), n_layers, dim)

    def score(sentences: Sequence[Sentence], unknown_only: bool = False) -> float:
        return task.score(
            [sentence.tags for sentence in sentences],
            batches.predict(model, sentences),
            [
                [not unknown_only or word not in batches.word_ids for word in sentence.words]
                for sentence in sentences
            ],
        )

    stop = keras.callbacks.EarlyStopping(
        "dev", mode="max", patience=settings.patience, restore_best_weights=True
    )
    history = model.fit(
        batches.dataset(train, rng),
        epochs=settings.max_rounds,
        steps_per_epoch=max(ROUND_STEPS, -(-len(train) // settings.batch_size)),
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: logs.update(dev=score(data.dev))),
            stop,
        ],
        shuffle=False,  # the batches come in random order already
        verbose=0,
    ).history
    return Result(
        variant, fraction, seed, len(train), len(history["loss"]), round(time.monotonic() - started, 1),
        max(history["dev"]), score(data.test), score(data.test, unknown_only=True), mixes_of(model),
    )  # fmt: skip


# --- the table --------------------------------------------------------------------------------------


def describe(result: Result) -> str:
    """Format a finished run as one line."""
    name = ALL_VARIANTS[result.variant].name
    return (
        f"{name}, {100 * result.fraction:.3g}%, seed {result.seed}: dev {result.dev:.4f}, "
        f"test {result.test:.4f} ({result.test_unknown:.4f} of unknown words), {result.rounds} rounds, "
        f"{result.seconds:.1f} s"
    )


def mean_and_deviation(values: Sequence[float]) -> str:
    """Format mean and sample standard deviation as percentages, such as ``91.25 ± 0.10``."""
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{deviation}"


def markdown_table(results: Sequence[Result], value: str) -> str:
    """Format means over the seeds, with a row per tagger and a column per fraction."""
    fractions = sorted({result.fraction for result in results})
    sizes = {result.fraction: result.n_sentences for result in results}
    rows = [["tagger", *(f"{100 * fraction:.3g}%: {sizes[fraction]:,} sentences" for fraction in fractions)]]
    rows.append(["---"] * len(rows[0]))
    for variant in [name for name in ALL_VARIANTS if name in {result.variant for result in results}]:
        cells = [
            [getattr(r, value) for r in results if (r.variant, r.fraction) == (variant, fraction)]
            for fraction in fractions
        ]
        rows.append(
            [ALL_VARIANTS[variant].name, *(mean_and_deviation(cell) if cell else "" for cell in cells)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# --- the command ------------------------------------------------------------------------------------


def tagging_command(task: Task, description: str) -> click.Command:
    """Make the command that trains and tests taggers on a task; its help is `description`."""

    def data_file(part: str) -> Callable[..., Any]:
        text = f"{task.file_format} file."
        return click.option(
            f"--{part}", f"{part}_file", type=click.Path(path_type=Path), required=True, help=text
        )

    @click.command(help=description.replace("\n\n", "\n\n\b\n"))  # click does not wrap it
    @data_file("train")
    @data_file("dev")
    @data_file("test")
    @embedding_model
    @click.option(
        "--fraction",
        "fractions",
        type=click.FloatRange(0, 1, min_open=True),
        multiple=True,
        default=[0.01, 0.1, 1.0],
        show_default=True,
        help="Fraction of the training sentences; repeatable.",
    )
    @click.option(
        "--variant",
        "variants",
        type=click.Choice(list(ALL_VARIANTS)),
        multiple=True,
        default=list(VARIANTS),
        help="Tagger to train; repeatable.  [default: the first five]",
    )
    @click.option("--ablations", is_flag=True, help="Train the taggers of the ablations.")
    @click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
    @click.option(
        "--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Sentences."
    )
    @click.option("--max-rounds", type=click.IntRange(min=1), default=20, show_default=True)
    @click.option(
        "--patience",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Stop after this many rounds without improvement on dev.",
    )
    @click.option(
        "--results", type=click.Path(path_type=Path), help="JSON of all runs, for inspect_layers.py."
    )
    @click.option(
        "--resume",
        is_flag=True,
        help="Keep the runs in --results, from an earlier call with the same settings.",
    )
    def main(
        train_file: Path, dev_file: Path, test_file: Path, model: ModelArguments, vocab_file: Path | None,
        fractions: tuple[float, ...], variants: tuple[str, ...], ablations: bool,
        seeds: int, batch_size: int, max_rounds: int, patience: int, results: Path | None, resume: bool,
    ) -> None:  # fmt: skip
        """Train and test all taggers and print the tables."""
        if resume and results is None:
            raise click.UsageError("--resume keeps the runs in --results; give it")
        if ablations and variants != tuple(VARIANTS):
            raise click.UsageError("--ablations has taggers of its own; leave out --variant")
        if results is not None:
            check_output(results, resume, [train_file, dev_file, test_file])
        parts = [task.read(path) for path in (train_file, dev_file, test_file)]
        done: list[Result] = []
        if resume and results is not None and results.is_file():
            done = [Result(**run) for run in json.loads(results.read_text())]
        finished = {(result.fraction, result.seed, result.variant) for result in done}
        names = tuple(ABLATIONS) if ablations else variants
        jobs = [job for job in product(sorted(fractions), range(seeds), names) if job not in finished]
        if jobs:
            embedder = ElmoEmbedder(model=model, vocab_file=vocab_file)
            started = time.monotonic()
            parts = [with_layers(part, embedder) for part in parts]
            print(f"the biLM's layers: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
        for fraction, seed, variant in jobs:
            settings = Settings(batch_size, max_rounds, patience)
            done.append(train_tagger(task, Data(*parts), variant, fraction, seed, settings))
            print(describe(done[-1]), file=sys.stderr, flush=True)
            if results is not None:
                write(results, (json.dumps([vars(result) for result in done], indent=1) + "\n").encode())
        print(f"Test {task.measure}\n\n{markdown_table(done, 'test')}")
        print(f"\nTest {task.measure} on words that are not in the training sentences\n")
        print(markdown_table(done, "test_unknown"))

    return main
