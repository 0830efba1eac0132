"""Text as a part of the model: `text.json` from `bilm prepare` to `--raw` and `embed_text`."""

import json
import re
import shutil
import unicodedata
import zipfile

import h5py
import numpy as np
import pytest
from icu4py import icu_version

import bilm
from bilm import ElmoEmbedder
from bilm.errors import ArgumentError
from tests.corpora import pipe
from tests.helpers import FILES, MODEL, VOCAB, invoke, printed, refuse, run, smallest_options, write_json

pytestmark = pytest.mark.usefixtures("opened_once")
RAW = "Mr. Maier saw the café. It’s raining, isn’t it?\n\nThe river\nrose. The river rose."
SENTENCES = [
    *("Mr . Maier saw the café .", "It’s raining , isn’t it ?"),
    *("The river rose .", "The river rose ."),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    place = tmp_path_factory.mktemp("raw")
    (place / "raw.txt").write_text("\n\n".join([RAW] * 20))
    bilm.prepare([place / "raw.txt"], place / "corpus", language="en", heldout=0.2, min_count=1)
    return place / "corpus"


@pytest.fixture(scope="module")
def trained(corpus):
    command = ("--corpus", corpus, "--options", write_json(corpus.parent / "o.json", smallest_options()))
    run("train", *command, "--save-dir", corpus.parent / "run", "--max-steps", 2, "--no-xla")
    return corpus.parent / "run"


@pytest.fixture
def texts(tmp_path):
    """A raw text, and its sentences as the model's steps make them."""
    (tmp_path / "raw.txt").write_text(unicodedata.normalize("NFD", RAW))
    paragraphs = "".join(f"<p>{paragraph}</p>" for paragraph in RAW.split("\n\n"))
    (tmp_path / "raw.xml").write_text(f"<TEI><teiHeader>x</teiHeader><text>{paragraphs}</text></TEI>")
    (tmp_path / "tokenised.txt").write_text("\n".join(SENTENCES) + "\n")
    return tmp_path / "raw.txt", tmp_path / "tokenised.txt"


# --- the file -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_keeps_the_steps(corpus, trained, tmp_path):
    steps = (corpus / "text.json").read_bytes()
    assert (trained / "text.json").read_bytes() == steps
    values = json.loads(steps)  # and no sentences or names of files
    assert values.pop("made_by") and values.keys() == vars(bilm.TextPipeline()).keys()
    assert f'corpus = "{corpus}"' in (trained / "run.toml").read_text()
    few = ("--max-steps", 1, "--no-xla")
    said = run("restart", "--corpus", corpus, "--model", trained, "--save-to", tmp_path / "a", *few)
    assert "\nvocabulary: the model's; --remap-vocab adapts the model to that of the text\n" in said
    run("restart", "--train-prefix", corpus / "train", "--model", trained, "--save-to", tmp_path / "b", *few)
    (tmp_path / "b/text.json").unlink()  # as in a run that was trained without a corpus
    run("restart", "--corpus", corpus, "--save-dir", tmp_path / "b", *few)
    for place in ("a", "b"):
        assert (tmp_path / place / "text.json").read_bytes() == steps


@pytest.mark.slow
def test_resumed_run_keeps_its_steps(corpus, tmp_path):
    steps = (corpus / "text.json").read_bytes()
    call = {"save_dir": tmp_path / "run", "corpus": corpus, "options": smallest_options(), "seed": 1}
    bilm.train(**call, max_steps=3, should_stop=lambda: True)
    other = json.loads(steps) | {"language": "de"}
    (corpus / "text.json").write_text(json.dumps(other))
    try:
        assert bilm.train(**call, max_steps=3, resume=True).outcome == "finished"
    finally:
        (corpus / "text.json").write_bytes(steps)
    assert (tmp_path / "run/text.json").read_bytes() == steps


@pytest.mark.slow
def test_other_steps_are_told(corpus, trained, tmp_path):
    german = tmp_path / "german"
    bilm.prepare([corpus.parent / "raw.txt"], german, language="de", min_count=1)
    flags = ("--model", trained, "--save-to", tmp_path / "new", "--max-steps", 1, "--remap-vocab", "--no-xla")
    output = run("restart", "--corpus", german, *flags)
    assert 'not those of the model\'s text: language ("en" to "de")' in " ".join(output.split())
    assert (tmp_path / "new/text.json").read_bytes() == (german / "text.json").read_bytes()


@pytest.mark.slow
def test_folder_and_archive_keep_the_steps(trained, texts, tmp_path):
    raw, _ = texts
    folder = tmp_path / "folder"
    for flags in ([], ["--overwrite"]):
        run("dump-weights", "--model", trained, "--model-dir", folder, "--with-softmax", *flags)
        assert (folder / "text.json").read_bytes() == (trained / "text.json").read_bytes()
    assert '\nlanguage: "en"\n' in (folder / "README.md").read_text()
    for model in (trained, folder):
        assert f"text: words by ICU {icu_version}, language en" in run("info", model)
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    expected = printed("score", "--raw", raw, "--model", trained)
    for model in (folder, tmp_path / "m.zip"):
        assert printed("score", "--raw", raw, "--model", model) == expected
        words = [sentence.words for sentence in ElmoEmbedder.from_model(model).embed_text(RAW)]
        assert [*map(" ".join, words)] == SENTENCES


def test_train_needs_a_directory_of_its_own(corpus, tmp_path):
    before = (corpus / "text.json").read_bytes()
    flags = ("--corpus", corpus, "--options", write_json(tmp_path / "o.json", smallest_options()))
    message = refuse("train", *flags, "--save-dir", corpus)
    assert message.startswith(f"{corpus}: is an input of this command")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/text.json").write_text("mine")
    assert f"{tmp_path}/run/text.json" in refuse("train", *flags, "--save-dir", tmp_path / "run")
    assert (corpus / "text.json").read_bytes() == before
    assert (tmp_path / "run/text.json").read_text() == "mine"


# --- raw text -----------------------------------------------------------------------------------------


COMMANDS = {
    "score": ["score", ...],
    "tokens": ["score", ..., "--tokens", "--format", "jsonl"],
    "predict": ["predict", ..., "--format", "jsonl", "--n-best", 3],
    "neighbours": ["neighbours", "river", "The river rose .", ..., "-n", 4],
    "test": ["test", "--test-prefix", ..., "--json"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_raw_text_is_read_as_its_sentences(name, trained, texts):
    places = re.compile(r"^(corpus: |model: ).*\n", re.MULTILINE)
    plain, markup, tokenised = (
        places.sub("", printed(*(text if word is ... else word for word in COMMANDS[name]), *flags))
        for text, flags in of_texts(texts, trained)
    )
    assert plain == markup == tokenised != ""


def of_texts(texts, model):
    """The raw text, the same in TEI, and the tokenised one, with flags."""
    raw, tokenised = texts
    return [(text, ["--raw", "--model", model]) for text in (raw, raw.with_suffix(".xml"))] + [
        (tokenised, ["--model", model])
    ]


def test_raw_text_has_paragraphs_and_may_be_piped(trained, tmp_path):
    for name, content in (
        ("lines.txt", "The river\nIt rose .\n"),
        ("raw.html", "<html><h1>The river</h1><p>It rose."),
        ("words.conllu", "1\tNo" + "\t_" * 8 + "\n"),
    ):
        (tmp_path / name).write_text(content)
    expected = printed("score", tmp_path / "lines.txt", "--model", trained)
    assert printed("score", "--raw", tmp_path / "raw.html", "--model", trained) == expected
    assert printed("score", "--raw", pipe(b"The river\n\nIt rose."), "--model", trained) == expected
    message = refuse("score", "--raw", tmp_path / "words.conllu", "--model", trained)
    assert (
        f"{tmp_path}/words.conllu: is CoNLL-U, which is tokenised already; convert it with `bilm prepare`"
        in message
    )


@pytest.mark.slow
def test_raw_text_is_read_as_the_corpus_was(trained, tmp_path):
    (tmp_path / "lines.txt").write_text("Zwölf .\n")
    expected = printed("score", tmp_path / "lines.txt", "--model", trained)
    model = shutil.copytree(trained, tmp_path / "run")
    steps = json.loads((model / "text.json").read_text())
    write_json(model / "text.json", steps | {"encoding": "mac-roman", "field": "note"})
    for name, text, encoding in (
        ("mac.txt", "Zwölf.", "mac-roman"),
        ("wide.txt", "Zwölf.", "utf-16"),
        ("lines.json", '{"note": "Zwölf."}', "utf-8"),
        ("table.csv", "id,note\n1,Zwölf.\n", "utf-8"),
    ):
        (tmp_path / name).write_bytes(text.encode(encoding))
        assert printed("score", "--raw", tmp_path / name, "--model", model) == expected, name


def test_raw_text_of_several_files_is_tested_as_one(trained, texts, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    for file in (texts[0], texts[0].with_suffix(".xml")):
        shutil.copy(file, folder)
    empty = folder / "empty.txt"
    empty.touch()
    readme = folder / "README.txt"
    readme.write_text("Nine more sentences.\n")
    test = ("test", "--raw", "--model", trained, "--test-prefix")
    said = run(*test, folder)
    assert "2 files, 8 sentences" in said and f"skipped {empty}: is empty" in said
    assert f"skipped {readme}: seems to describe the texts" in said
    assert refuse(*test, folder, empty) == f"{empty}: is empty"
    inner = tmp_path / "a/b/c/d/e/f"  # from which the text is above the temporary file
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert "8 sentences" in run(*test, "../../../../../../folder")
    assert refuse("score", "--raw", folder, "--model", trained).endswith(
        "folder: is a folder; give a file in it"
    )


@pytest.mark.slow
@pytest.mark.parametrize("has_words", [False, True])
def test_new_softmax_has_the_words_of_the_corpus(has_words, corpus, tmp_path):
    (tmp_path / "model").mkdir()
    for file in (*FILES, *([VOCAB] if has_words else [])):
        shutil.copy(file, tmp_path / "model")
    few = ("--max-steps", 1, "--batch-size", 2, "--set", "unroll_steps=3", "--no-xla")
    model = ("--model", tmp_path / "model", "--save-to", tmp_path / "to")
    said = run("restart", "--corpus", corpus, *model, *few)
    assert "vocabulary: the model's" not in said and "with a new softmax" in said
    assert (tmp_path / "to/vocab.txt").read_bytes() == (corpus / "vocab.txt").read_bytes()


def test_raw_text_is_embedded_as_its_sentences(trained, texts):
    for text, flags in of_texts(texts, trained):
        output = run("embed", text, f"{text}.hdf5", *flags)
        assert ("4 sentences" in output) == ("--raw" in flags) and "0.00% not in the vocabulary" in output
    raw, markup, tokenised = (h5py.File(f"{text}.hdf5") for text, _ in of_texts(texts, trained))
    with raw, markup, tokenised:
        assert tokenised.keys() == {*"0123", "sentence_to_index"} == raw.keys() - {"sentences"}
        assert [*raw["sentences"].asstr()] == [*markup["sentences"].asstr()] == SENTENCES
        for key in "0123":
            np.testing.assert_array_equal(raw[key], tokenised[key])
        index = json.loads(raw["sentence_to_index"][0])  # which has one number of a repeated one
    assert index == {sentence: str(k) for k, sentence in enumerate(SENTENCES)}


@pytest.mark.slow
def test_embedded_raw_text_is_resumed(trained, texts, tmp_path):
    raw, _ = texts
    embedder = ElmoEmbedder.from_model(trained)
    embedder.embed_file(raw.with_suffix(".xml"), tmp_path / "whole.hdf5", raw=True)
    text = raw.read_text()
    raw.write_text(text + "\n\nThe river. It rose.\n\nsentences")
    run("embed", "--raw", raw, tmp_path / "whole.hdf5", "--resume", "--model", trained)
    with h5py.File(tmp_path / "whole.hdf5") as file:
        sentences = [*SENTENCES, "The river .", "It rose .", "sentences"]
        assert [*file["sentences"].asstr()] == sentences and len(file) == len(sentences) + 2
        assert file["5"].shape[1] == 3
    run("embed", "--raw", raw, tmp_path / "keys.hdf5", "--use-sentence-keys", "--model", trained)
    with h5py.File(tmp_path / "keys.hdf5") as file:
        assert file.keys() == {*sentences} and file["sentences"].shape[1] == 1


def test_raw_text_is_embedded_to_parquet(trained, texts, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    raw, _ = texts
    run("embed", "--raw", raw, raw, tmp_path / "out", "--format", "parquet", "--model", trained)
    table = parquet.read_table(tmp_path / "out").to_pydict()
    assert table["sentence"] == SENTENCES * 2 and table["line"] == [0, 1, 2, 3] * 2
    (tmp_path / "words").write_text("river\u200f\n")
    asked = ("embed", "--raw", raw, tmp_path / "some", "--format", "parquet", "--model", trained)
    assert "no vectors" not in run(*asked, "--words", tmp_path / "words")
    assert parquet.read_table(tmp_path / "some").to_pydict()["word"] == ["river"] * 2


def test_query_is_raw_too(trained, texts):
    raw, _ = texts
    asked = ("neighbours", "--raw", unicodedata.normalize("NFD", "café"))
    found = printed(*asked, "It rose. He saw the café.", raw, "--model", trained, "--same-word", "-n", 1)
    assert found.endswith("\t0\tMr . Maier saw the [café] .\n")
    assert found == printed(*asked, "He saw the café.", raw, "--model", trained, "--same-word", "-n", 1)
    message = refuse(*asked, "It rose. He saw.", raw, "--model", trained)
    assert message == "'café' is not a word of the sentence 'It rose . He saw .'"


@pytest.mark.parametrize("gap", ["___", "[MASK]", "river", "<gap>"])
def test_gap_is_a_word(gap, trained, tmp_path):
    text = f"It rose. The ({gap}), or a {gap}."
    (tmp_path / "raw.txt").write_text(text)
    flags = ("--raw", tmp_path / "raw.txt", "--model", trained, "--n-best", 2, "--format", "jsonl")
    records = [json.loads(line) for line in printed("predict", *flags, "--gap", gap).splitlines()]
    sentence = f"The ( {gap} ) , or a {gap} ."
    assert [(r["line"], r["position"], r["word"], r["sentence"]) for r in records] == [
        (1, 2, gap, sentence),
        (1, 7, gap, sentence),
    ]
    predictor = bilm.WordPredictor.from_model(trained)
    none, (words, predictions) = predictor.predict_text(text, 2, gap=gap)
    assert none == ("It rose .".split(), []) and words == sentence.split()
    assert [prediction.position for prediction in predictions] == [2, 7]


def test_embedded_text_has_words_and_vectors(trained, tmp_path):
    embedder = ElmoEmbedder.from_model(trained)
    embedded, as_words = embedder.embed_text(RAW), [sentence.split() for sentence in SENTENCES]
    assert [sentence.words for sentence in embedded] == as_words
    for (words, vectors), expected in zip(embedded, embedder.embed_batch(as_words), strict=True):
        assert len(words) == vectors.shape[1]
        np.testing.assert_array_equal(vectors, expected)
    (one,) = embedder.embed_text("The river.", layers="top", pooling="mean")
    assert one.vectors.shape == (embedder.dim,) and embedder.embed_text(" \n") == []


def test_model_without_steps_refuses_raw_text(texts):
    raw, _ = texts
    message = refuse("neighbours", "--raw", "a", "a", raw, *MODEL, status=2)
    assert "has no text.json" in message and "train a model on a --corpus" in message
    with pytest.raises(ArgumentError, match="has no text.json"):
        ElmoEmbedder(*FILES).embed_text("a")


@pytest.mark.slow
def test_other_version_of_icu_is_told_once(trained, texts, tmp_path, caplog):
    raw, _ = texts
    folder = tmp_path / "folder"
    run("dump-weights", "--model", trained, "--model-dir", folder, "--with-softmax")
    steps = json.loads((folder / "text.json").read_text())
    for icu, n_warnings in (("9.1", 1), (steps["icu"], 0)):
        (folder / "text.json").write_text(json.dumps(steps | {"icu": icu}))
        for command in (["score"], ["neighbours", "river", "The river."]):
            caplog.clear()
            run(*command, "--raw", raw, "--model", folder)
            assert sum("tokenised by ICU 9.1" in message for message in caplog.messages) == n_warnings


@pytest.mark.parametrize("command", ["score", "embed"])
def test_tokenised_text_is_told_once(command, trained, texts, tmp_path, caplog):
    _, tokenised = texts
    out = [tmp_path / "out.hdf5"] if command == "embed" else []
    run(command, "--raw", tokenised, *out, "--model", trained)
    assert [message for message in caplog.messages if "most lines" in message] == [
        f"{tokenised}: most lines seem to be tokenised; leave out `raw` to keep the words"
    ]


def test_damaged_steps_stop_raw_text_alone(trained, texts, tmp_path):
    raw, tokenised = texts
    run("dump-weights", "--model", trained, "--model-dir", tmp_path / "m", "--with-softmax")
    (tmp_path / "m/text.json").write_text("{")
    run("score", tokenised, "--model", tmp_path / "m")
    assert f"\ntext: {tmp_path}/m/text.json: is not JSON" in run("info", tmp_path / "m")
    assert f"{tmp_path}/m/text.json: is not JSON" in refuse("score", "--raw", raw, "--model", tmp_path / "m")


@pytest.mark.parametrize("command", ["score", "embed"])
def test_workers_take_no_raw_text(command, trained, texts, tmp_path):
    pytest.importorskip("ray")
    out = [tmp_path / "out"] if command == "embed" else []
    message = refuse(command, "--raw", texts[0], *out, "--model", trained, "--ray", "local", status=2)
    assert message == "--ray does not go with --raw"


# --- what a text seems to be --------------------------------------------------------------------------


UNKNOWN = {
    "score": ["score", ...],
    "predict": ["predict", ..., "--gap", "___"],
    "embed": ["embed", ..., "out.hdf5"],
    "neighbours": ["neighbours", "river", "The river", ...],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", UNKNOWN)
def test_unknown_words_are_told(command, trained, tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_text("The river rose . The river ___ rose . ?\n")
    many.write_text("<S> The xx ___ yy </S>\n")
    for text, share, warnings in (
        (few, "0.00% not in the vocabulary", []),
        (many, "40.00% not in the vocabulary", ["% of the words are not in the", "<S> or </S> 2 times"]),
    ):
        caplog.clear()
        words = [text if word is ... else word for word in UNKNOWN[command]]
        output = invoke(*words, "--model", trained, *["--overwrite"] * (command == "embed")).output
        assert (share if command == "predict" else "not in the vocabulary") in output
        for warning, message in zip(warnings, caplog.messages, strict=True):
            assert warning in message
    assert "; a raw text needs --raw" in caplog.messages[0]


def test_test_mentions_raw(trained, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("xx yy zz\n")
    said = run("test", "--model", trained, "--test-prefix", path)
    assert "corpus: if it is raw text, give --raw" in " ".join(said.split())


def test_missing_gap_is_told(trained, texts, tmp_path):
    message = refuse("predict", texts[1], "--model", trained, "--gap", "___")
    assert message == "--gap: '___' is not a word of the text"
    gaps = tmp_path / "gaps.txt"
    gaps.write_text("The ___ rose .\nThe ___, the ___.\n___!\n")
    said = invoke("predict", gaps, "--model", trained, "--gap", "___").stderr
    assert (
        f"{gaps}: line 2: '___' is not a word by itself in '___,', and was not filled; there are 3 such words"
        in said
    )


@pytest.mark.parametrize("command", ["score", "predict", "embed"])
def test_sentence_in_place_of_a_file_is_told(command, trained, tmp_path):
    out = [tmp_path / "out"] if command == "embed" else []
    message = refuse(command, "The river rose .", *out, "--model", trained)
    remedy = "to give a sentence itself, give - and write it to standard input"
    assert message == f"The river rose .: No such file or directory; {remedy}"
    assert refuse(command, "x" * 300, *out, "--model", trained).endswith(": File name too long")
