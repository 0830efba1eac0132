"""Perplexity of a text under a model."""

import math
from collections.abc import Iterable
from contextlib import ExitStack

from bilm.backend.on_tensorflow import use_tf32
from bilm.data.corpus import describe_corpus, read_text
from bilm.embedding.scoring import Scorer
from bilm.errors import ArgumentError, checked, require_positive
from bilm.io import PathLike, as_patterns, shards
from bilm.options.parameters import Compat, Precision
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.reporter import ProgressReporter, Reporter, TestResult
from bilm.text.extract import recognise_all
from bilm.training.meter import mean


@checked
def test(
    test_prefix: PathLike | Iterable[PathLike],
    save_dir: PathLike | None = None,
    *,
    model: PathLike | None = None,
    vocab_file: PathLike | None = None,
    raw: bool = False,
    checkpoint: PathLike | int | None = None,
    batch_size: int | None = None,
    compat: str | None = None,
    precision: str = "float32",
    reporter: Reporter | None = None,
) -> TestResult:
    """Compute the perplexity of a text under the full softmax, as ``bilm test``; scores every token once.

    Args:
        test_prefix: text, one sentence per line: files, directories or globs; ``-`` for standard input.
        save_dir: run directory of bilm or bilm-tf.
        model: path of a model, instead of `save_dir`: a run directory, or a folder or archive of weights
            dumped with the softmax.
        vocab_file: vocabulary; None for the run's copy, or the one that comes with `model`.
        raw: the text is raw, and is tokenised as the training text was; needs the model's ``text.json``.
        checkpoint: ``"latest"`` (the default), ``"best"``, a step or a name, see `RunDirectory.choose`.
        batch_size: rows of a batch, only with `compat`; None for 256.
        compat: ``"bilm-tf"`` to compute bilm-tf's number: the state is carried from sentence to sentence in
            each of `batch_size` rows, blank lines are empty sentences, and reading stops when a row has no
            further sentence.
        precision: data type of matrix products, see `bilm.options.Precision`.
        reporter: receives the progress; None to show it on standard error. ``bilm.Reporter()`` sends
            messages and validations to the logger ``bilm``.

    Raises:
        ArgumentError: the model or its vocabulary is missing; or `batch_size` is set without `compat`.
        BilmError: run, vocabulary or text cannot be used.

    Example:
        >>> import bilm
        >>> result = bilm.test("heldout.txt", "run")
        >>> result.tokens, round(result.perplexity)
        (747, 53)
    """
    patterns = as_patterns(test_prefix, "test_prefix")
    if compat is not None:
        compat = Compat(compat)
    elif batch_size is not None:
        raise ArgumentError(
            "`batch_size` needs `compat`; without it, the perplexity does not depend on the batch size"
        )
    n_rows = 256 if batch_size is None else batch_size
    require_positive(batch_size=n_rows)
    reporter = reporter or ProgressReporter()
    if not any(map(shards.can_be_read_once, patterns)):  # a pipe is read after the model
        shards.find_files(patterns)
    stored = ModelArguments(model, save_dir, checkpoint=checkpoint).open()
    scorer = Scorer.from_stored(stored, vocab_file, precision)
    with ExitStack() as resources:
        use_tf32(precision == Precision.TF32, resources)
        n_files = None
        if raw:
            files = resources.enter_context(shards.input_files(patterns))
            steps = stored.steps.require()
            sources, skipped = recognise_all(files, patterns, steps.encoding, steps.field)
            for name, reason in skipped.items():
                reporter.warn(f"skipped {name}: {reason}")
            read = (sentence for source in sources for sentence in steps.read(source.raw_lines(steps)))
            sentences = (f"{sentence}\n".encode() for sentence in read)
            n_files = len(sources)
            name = f"sentences of {shards.name_files([source.name for source in sources])}"
            patterns = (
                str(resources.enter_context(shards.spooled(sentences, name, "sentences of the raw text"))),
            )
        text = read_text(patterns, "test_prefix", scorer.vocabulary, resources)
        reporter.say(describe_corpus(text.counts, n_files=n_files))
        for doubt in text.doubts:
            reporter.warn(f"corpus: {doubt}")
        if text.doubts and not raw and stored.steps.content is not None:
            reporter.warn("corpus: if it is raw text, give `raw`, which splits it as the training text was")
        step = "" if stored.step is None else f", step {stored.step:,}"
        reporter.say(f"model: {stored.source}{step}")
        n_tokens = text.counts.n_tokens
        resources.callback(reporter.end)
        reporter.scored(0, n_tokens)
        parts, n_together = text.sentences(compat=compat is not None), None if compat is None else n_rows
        result = scorer.evaluate(parts, lambda n_scored: reporter.scored(n_scored, n_tokens), n_together)
    return TestResult(
        **result.perplexities._asdict(),
        known_perplexity=result.known_perplexity,
        bits_per_character=mean(result.direction_losses) / math.log(2) * n_tokens / text.counts.n_characters,
        tokens=result.n_tokens,
        oov_rate=text.counts.oov_rate,
        checkpoint=stored.source,
        step=stored.step,
    )


test.__test__ = False  # type: ignore[attr-defined] # pytest then does not collect it where a user imports it
