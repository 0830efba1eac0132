"""The perplexity of a text under a run's model."""

import functools
from collections.abc import Sequence
from contextlib import ExitStack

from bilm.data.corpus import describe_corpus, read_text
from bilm.errors import ArgumentError, require_positive
from bilm.io import PathLike
from bilm.options import Compat
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.reporter import ProgressReporter, Reporter, TestResult
from bilm.training.evaluation import open_scorer


def test(
    test_prefix: PathLike | Sequence[PathLike],
    save_dir: PathLike | None = None,
    *,
    model: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: str | int | None = None,
    weights: str | None = None,
    batch_size: int | None = None,
    compat: str | None = None,
    reporter: Reporter | None = None,
) -> TestResult:
    """The perplexity of a text under the full softmax, every token scored once, as ``bilm test`` prints it.

    Args:
        test_prefix: text, one sentence per line: files, directories or globs; ``-`` for standard input.
        save_dir: run directory of bilm or bilm-tf.
        model: a model by its path, instead of `save_dir`: a run directory; or a folder or a ZIP archive of
            weights that were dumped with their softmax.
        vocab_file: vocabulary; None for the run's copy, or the one that comes with `model`.
        checkpoint: ``"latest"`` (the default), ``"best"`` or a step.
        weights: ``"raw"``, or ``"averaged"`` for their averages over the training; None for the averages
            where the run has kept some.
        batch_size: rows of a batch, with `compat` only; None for 256.
        compat: ``"bilm-tf"`` for the number that it prints: the state is carried from sentence to sentence
            of each of `batch_size` rows, blank lines are empty sentences, and reading stops when a row finds
            no further sentence.
        reporter: receives the progress; None to show it on standard error. ``bilm.Reporter()`` tells the
            logger ``bilm``.

    Raises:
        ArgumentError: no model was given; or the run holds no vocabulary, and none was given; or
            `batch_size` without `compat`.
        BilmError: run, vocabulary or text cannot be used.

    Example:
        >>> import bilm
        >>> result = bilm.test("heldout.txt", "run")
        >>> result.tokens, round(result.perplexity)
        (747, 53)
    """
    if compat is not None:
        compat = Compat(compat)
    elif batch_size is not None:
        raise ArgumentError(
            "`batch_size` goes with `compat`; without it the perplexity does not depend on rows of a batch"
        )
    n_rows = 256 if batch_size is None else batch_size
    require_positive(batch_size=n_rows)
    reporter = reporter or ProgressReporter()
    stored = ModelArguments(model, save_dir, checkpoint=checkpoint, weights=weights).open(takes_files=False)
    scorer = open_scorer(stored, vocab_file)
    with ExitStack() as resources:
        text = read_text(test_prefix, "test_prefix", scorer.vocabulary, resources)
        reporter.say(describe_corpus(text.counts))
        for doubt in text.doubts:
            reporter.warn(f"corpus: {doubt}")
        step = "" if stored.step is None else f", step {stored.step:,}"
        reporter.say(f"model: {stored.source}{step}{stored.note}")
        n_tokens = text.counts.n_tokens
        resources.callback(reporter.end)
        reporter.scored(0, n_tokens)
        on_tokens = functools.partial(reporter.scored, n_tokens=n_tokens)
        parts = text.sentences(compat=compat is not None)
        result = scorer.evaluate(parts, on_tokens, None if compat is None else n_rows)
    return TestResult(
        **result.perplexities._asdict(),
        tokens=result.n_tokens,
        oov_rate=text.counts.oov_rate,
        checkpoint=stored.source,
        step=stored.step,
    )
