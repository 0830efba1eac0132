"""The model card ``README.md`` of a distributed model, with the header that model hubs read."""

import json
import shlex
import textwrap
from collections.abc import Mapping

from bilm import __version__
from bilm.io.messages import printable
from bilm.io.run_files import CALLS_FILE, METRICS_FILE
from bilm.run_directory.records import HeldoutRecord, read_calls, read_metrics
from bilm.weights.distribution import StoredModel

CARD_NAME = "README.md"


def model_card(
    stored: StoredModel,
    about: Mapping[str, str | None],
    name: str,
    n_parameters: int,
    n_words: int,
    with_softmax: bool,
) -> bytes:
    """Write the card of a model from its options and the records of its run.

    Args:
        stored: model to describe.
        about: ``language``, ``license`` and ``description``; None for values not stated.
        name: name of the directory that the model is written to.
        n_parameters: number of parameters written.
        n_words: number of words in the vocabulary.
        with_softmax: true if the softmax is written.

    Raises:
        DataError: a record of the run cannot be read.
    """
    options, lstm = stored.options, stored.options.lstm
    heldout = _heldout(stored)
    measured = "not measured"
    if heldout is not None:
        measured = f"{heldout.perplexity:.2f} at step {stored.step:,}"
        if heldout.known_perplexity is not None:
            measured += f", {heldout.known_perplexity:.2f} for the words in the vocabulary"
    fields = {
        "language": about["language"],
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

An ELMo: a bidirectional language model. It gives each word of a sentence vectors that depend on the sentence.

| | |
|---|---|
| language | {about["language"] or "not stated"} |
| licence | {about["license"] or "not stated"} |
| parameters | {n_parameters:,}, {"with" if with_softmax else "without"} the softmax |
| words | {n_words:,}, in `vocab.txt` |
| normal form | {"words as they are" if options.unicode_form is None else f"Unicode {options.unicode_form}"} |
| input | {"words" if options.char_cnn is None else "characters"} |
| directions | {"forward and backward" if options.bidirectional else "forward"} |
| LSTM layers | {lstm.n_layers}, of {lstm.dim:,} units |
| vectors | {lstm.projection_dim:,} numbers in each direction |
| recipe | {"not recorded" if options.recipe is None else options.recipe.value} |
| training | {"steps not recorded" if stored.step is None else f"{stored.step:,} steps"} |
| heldout perplexity | {measured} |
| written by | bilm {__version__} |

## Use

With the Python package bilm, which the distribution bilm-tf2 installs:

```python
from bilm import ElmoEmbedder

embedder = ElmoEmbedder.from_model({name!r})
vectors = embedder.embed_sentence(["Time", "flies"])  # (layers, words, dim)
```

The vectors of a file, one sentence per line:

```console
bilm embed text.txt vectors.hdf5 --model {shlex.quote(name)}
```

## Training

{_training(stored)}
"""
    return card.encode("utf-8", "backslashreplace")


def _heldout(stored: StoredModel) -> HeldoutRecord | None:
    """Return the record of the validation at the step of the weights, or None."""
    file = stored.path / METRICS_FILE
    if stored.step is None or not file.is_file():
        return None
    records = read_metrics(file).heldout
    return next((record for record in records if record.step == stored.step), None)


def _training(stored: StoredModel) -> str:
    """List the commands that trained the model."""
    file = stored.path / CALLS_FILE
    if stored.step is None or not file.is_file():
        return "The commands of its training are not recorded."
    commands = [
        printable(f"# seed {call.seed}, bilm {call.versions.get('bilm')}\n{call.command}")
        for call in read_calls(file)
        if call.step < stored.step
    ]
    return "Its commands, the first one first:\n\n" + textwrap.indent("\n".join(commands), "    ")
