"""The architecture `bilm.Elmo.v1` in pipelines of spaCy."""

import shutil
from importlib import metadata

import numpy as np
import pytest

from bilm import ElmoEmbedder
from bilm.errors import WeightsError
from tests.distributed import model_files, write_folder
from tests.helpers import FILES, ROOT

pytest.importorskip("spacy.training")  # examples/spacy is no package of that name

import spacy
from spacy.cli.init_config import fill_config
from spacy.training import Corpus, Example
from thinc.api import Config

from bilm.spacy import make_elmo

TEXTS = {"the river": ["D", "N"], "a fish swims in it": ["D", "N", "V", "P", "N"], "it swims": ["N", "V"]}
PARTS = {"D": "DET", "N": "NOUN", "P": "ADP", "V": "VERB"}  # label smoothing needs two classes

pytestmark = pytest.mark.skipif(
    not metadata.entry_points(group="spacy_architectures", name="bilm.Elmo.v1"),
    reason="installed before spaCy's",
)


def pipeline(model, beside=True, **settings):
    """The example's pipeline, small and not yet trained."""
    config = Config().from_disk(ROOT / "examples" / "spacy" / "elmo.cfg", interpolate=False)
    config["paths"]["elmo"] = str(model)
    config["components"]["tok2vec"]["model"]["encode"]["width"] = 16
    embed = config["components"]["tok2vec"]["model"]["embed"]
    embed |= settings
    if not beside:
        del embed["beside"]
    return spacy.util.load_model_from_config(config.interpolate(), auto_fill=True)


def elmo_of(nlp):
    """The biLM's layer of a pipeline."""
    return next(layer for layer in nlp.get_pipe("tok2vec").model.walk() if layer.name == "elmo")


def train(nlp, n_steps=2):
    """Train on three short texts; count the sentences that the biLM embedded."""
    examples = [
        Example.from_dict(
            nlp.make_doc(text),
            {"tags": tags, "pos": [PARTS[tag] for tag in tags], "morphs": ["_"] * len(tags)},
        )
        for text, tags in TEXTS.items()
    ]
    optimizer, embedded = nlp.initialize(lambda: examples), []
    embedder = elmo_of(nlp).shims[0].embedder
    embed = embedder.embed_sentences
    embedder.embed_sentences = lambda new, layers: embedded.extend(new) or embed(new, layers=layers)
    for _ in range(n_steps):
        nlp.update(examples, sgd=optimizer)
        nlp.evaluate(examples)
    del embedder.embed_sentences
    return len(embedded)


@pytest.mark.parametrize("store", [True, False])
def test_pipeline_gives_same_vectors_after_reading(tmp_path, store):
    model = write_folder(tmp_path / "elmo", model_files())
    nlp = pipeline(model, store=store)
    train(nlp)
    nlp.to_disk(tmp_path / "pipeline")
    if store:
        shutil.rmtree(model)
    expected = [nlp(text).tensor for text in TEXTS]
    for read in (spacy.load(tmp_path / "pipeline"), nlp.from_disk(tmp_path / "pipeline")):
        elmo = elmo_of(read).shims[0]
        assert not elmo.cache and elmo.free_bytes == 2e9  # the vectors may be another model's
        for text, tensor in zip(TEXTS, expected, strict=True):
            np.testing.assert_allclose(read(text).tensor, tensor, atol=1e-5)
    if not store:
        moved = {"components.tok2vec.model.embed.model": str(model.rename(tmp_path / "moved"))}
        read = spacy.load(tmp_path / "pipeline", config=moved)
        np.testing.assert_allclose(read(next(iter(TEXTS))).tensor, expected[0], atol=1e-5)


def test_pipeline_refuses_another_model(tmp_path):
    embedder, model = ElmoEmbedder(*FILES), tmp_path / "elmo.zip"
    model.write_bytes(embedder.to_bytes())
    nlp = pipeline(model, store=False)
    train(nlp, 0)
    nlp.to_disk(tmp_path / "pipeline")
    embedder.model.encoder.weights[0].assign_add(embedder.model.encoder.weights[0])
    model.write_bytes(embedder.to_bytes())
    with pytest.raises(WeightsError, match="elmo.zip: not the model that the pipeline was trained with"):
        spacy.load(tmp_path / "pipeline")


def test_training_embeds_sentences_once():
    assert train(pipeline(FILES[1]), n_steps=3) == len(TEXTS)


def test_vectors_beyond_cache_are_computed_again():
    assert train(pipeline(FILES[1], cache_mb=0.0), n_steps=2) == 4 * len(TEXTS)


def test_cache_keeps_to_its_size():
    [longest] = ElmoEmbedder(*FILES).embed_sentences([["it"] * 5], layers="concat")
    assert train(pipeline(FILES[1], cache_mb=longest.nbytes / 1e6), n_steps=2) == len(TEXTS) + 3


def test_example_is_a_base_of_configurations(tmp_path):
    fill_config(tmp_path / "filled.cfg", ROOT / "examples" / "spacy" / "elmo.cfg", silent=True)
    assert "\ncache_mb = 2000\n" in (tmp_path / "filled.cfg").read_text()


def test_vectors_are_those_of_concat():
    elmo = next(layer for layer in make_elmo(str(FILES[1]), 4).walk() if layer.name == "elmo")
    elmo.initialize()
    outputs, backprop = elmo.begin_update([spacy.blank("xx").make_doc(text) for text in TEXTS])
    expected = ElmoEmbedder(*FILES).embed_sentences([text.split() for text in TEXTS], layers="concat")
    for output, vectors in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, vectors, atol=1e-6)
    assert backprop(outputs) == []
    with_space, words = elmo.predict(
        [spacy.blank("xx").make_doc(text) for text in ("the  river\n\n", "the river")]
    )
    np.testing.assert_allclose(with_space[[0, 2]], words, atol=1e-6)
    assert not np.any(with_space[[1, 3]])


def test_found_sentences_have_contexts_of_their_own():
    nlp = pipeline(FILES[1], beside=False)
    train(nlp, 0)
    nlp.add_pipe("sentencizer", first=True)
    elmo, tok2vec = elmo_of(nlp), nlp.get_pipe("tok2vec")
    together, alone = (
        nlp.get_pipe("sentencizer")(nlp.make_doc(text)) for text in ("A fish . It swims", "A fish .")
    )
    vectors, expected = elmo.predict([together])[0], elmo.predict([alone])[0]
    assert vectors.shape == (5, elmo.get_dim("nO"))
    np.testing.assert_allclose(vectors[:3], expected, atol=1e-6)
    assert not np.allclose(elmo.predict([nlp.make_doc(together.text)])[0][:3], expected, atol=1e-3)
    assert tok2vec.predict([nlp.make_doc("")])[0].shape == (0, 16)


def test_example_trains_by_command(tmp_path):
    """`spacy train` finds the architecture without ``--code``."""
    nlp, examples = spacy.blank("xx"), tmp_path / "train.spacy"
    docs = [
        spacy.tokens.Doc(
            nlp.vocab,
            text.split(),
            tags=tags,
            pos=[PARTS[tag] for tag in tags],
            morphs=["Case=Nom"] * len(tags),
        )
        for text, tags in TEXTS.items()
    ]
    spacy.tokens.DocBin(docs=docs).to_disk(examples)
    assert len([*Corpus(examples)(nlp)]) == len(TEXTS)
    spacy.cli.train.train(
        ROOT / "examples" / "spacy" / "elmo.cfg",
        tmp_path / "out",
        overrides={
            **{"paths.train": str(examples), "paths.dev": str(examples), "paths.elmo": str(FILES[1])},
            **{"training.max_steps": 2, "training.eval_frequency": 1},
        },
    )
    assert [token.tag_ for token in spacy.load(tmp_path / "out" / "model-last")("the river")]
