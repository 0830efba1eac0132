"""The model card ``README.md`` of a distributed model, with the header that model hubs read."""

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from itertools import islice

from bilm import __version__
from bilm.io.messages import printable
from bilm.io.run_files import CALLS_FILE, METRICS_FILE
from bilm.run_directory.directory import RunModel
from bilm.run_directory.records import Metrics, read_calls, read_metrics
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS
from bilm.weights.distribution import StoredModel

CARD_NAME = "README.md"
_N_EXAMPLE = 5


def model_card(
    stored: StoredModel,
    about: Mapping[str, str | None],
    name: str,
    n_parameters: int,
    words: Sequence[str],
    with_softmax: bool,
) -> bytes:
    """Write the card of a model from its options and the records of its run.

    Args:
        stored: model to describe.
        about: ``language`` (None for that of the text), ``license`` and ``description``; None if not stated.
        name: name of the directory that the model is written to.
        n_parameters: number of parameters written.
        words: words of the vocabulary; its commonest are those of the example.
        with_softmax: true if the softmax is written.

    Raises:
        DataError: a record of the run cannot be read.
    """
    options, lstm = stored.options, stored.options.lstm
    metrics = Metrics((), ()) if stored.step is None else read_metrics(stored.path / METRICS_FILE)
    heldout = next((record for record in metrics.heldout if record.step == stored.step), None)
    measured = "not measured"
    if heldout is not None:
        measured = f"{heldout.perplexity:.2f} at step {stored.step:,}"
        if heldout.known_perplexity is not None:
            measured += f", {heldout.known_perplexity:.2f} for the words in the vocabulary"
    steps = stored.steps.pipeline
    language = about["language"] or (None if steps is None or steps.language == "und" else steps.language)
    fields = {
        "language": language,
        "license": about["license"],
        "library_name": "bilm",
        "tags": ["elmo", "bilm"],
        "pipeline_tag": "feature-extraction",
        "metrics": None if heldout is None else ["perplexity"],
    }
    head = "\n".join(f"{key}: {json.dumps(value)}" for key, value in fields.items() if value is not None)
    card = f"""\
---
{head}
---

# {printable(name)}

{about["description"] or "No description was given."}

An ELMo: a {"bidirectional" if options.bidirectional else "forward"} language model. It gives each word of a
sentence vectors that depend on the sentence.

| | |
|---|---|
| language | {language or "not stated"} |
| licence | {about["license"] or "not stated"} |
| parameters | {n_parameters:,}, {"with" if with_softmax else "without"} the softmax |
| words | {len(words):,}, in `vocab.txt`{_unknown(stored)} |
| text | {stored.steps.describe()} |
| normal form | {"words as they are" if options.unicode_form is None else f"Unicode {options.unicode_form}"} |
| input | {"words" if options.char_cnn is None else "characters"} |
| directions | {"forward and backward" if options.bidirectional else "forward"} |
| LSTM layers | {lstm.n_layers}, of {lstm.dim:,} units |
| vectors | {lstm.projection_dim:,} numbers in each direction |
| recipe | {"not recorded" if options.recipe is None else options.recipe.value} |
| training | {_amount(stored)} |
| heldout perplexity | {measured} |
| written by | bilm {__version__} |

## Use

With the Python package bilm:

```console
pip install .  # in a clone of the repository of bilm-tf2
```

```python
from bilm import ElmoEmbedder

embedder = ElmoEmbedder.from_model({name!r})
vectors = embedder.embed_sentence({_example(words)})  # (layers, words, dim)
```

The vectors of a file, one sentence per line:

```console
bilm embed text.txt vectors.hdf5 --model {shlex.quote(name)}
```

## Training

{_training(stored)}
"""
    return card.encode("utf-8", "backslashreplace")


def _example(words: Sequence[str]) -> list[str]:
    """Return some words of the model's language: a sentence of its text might be confidential."""
    common = (word for word in words if word not in SPECIAL_TOKENS and any(map(str.isalpha, word)))
    return [*islice(common, _N_EXAMPLE)] or ["Time", "flies"]


def _unknown(stored: StoredModel) -> str:
    if not isinstance(stored, RunModel):
        return ""
    text = stored.recorded.section("settings").section("train_prefix")
    n_words, n_oov = (text.take(name, int, 0) for name in ("n_words", "n_oov"))
    return f"; {n_oov / n_words:.2%} of the training text are others" if n_words else ""


def _amount(stored: StoredModel) -> str:
    """Return the steps up to the weights, and the tokens and passes of the last command."""
    if not isinstance(stored, RunModel):
        return "steps not recorded"
    n = stored.recorded.take("n_tokens", int, 0)
    text = stored.recorded.section("settings").section("train_prefix")
    n_of_text = text.take("n_words", int, 0) + text.take("n_sentences", int, 0)
    amount = f"; in the last command {n:,} tokens, {n / n_of_text:.2f} passes" if n and n_of_text else ""
    return f"{stored.step:,} steps{amount}"


def _training(stored: StoredModel) -> str:
    """List the commands that trained the model."""
    step = stored.step or 0
    begun = {call.step: call for call in (read_calls(stored.path / CALLS_FILE) if step else ())}
    calls = [call for call in begun.values() if call.step < step]  # the last from each step
    if not calls:
        return "The commands of its training are not recorded."
    commands = [
        printable(f"# seed {call.seed}, bilm {call.versions.get('bilm')}\n{call.command}") for call in calls
    ]
    before = f", after {calls[0].step:,} steps of another run" if calls[0].step else ""
    return f"Its commands, the first one first{before}:\n\n" + textwrap.indent("\n".join(commands), "    ")
