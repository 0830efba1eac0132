"""`bilm neighbours`: the nearest words of a text."""

import itertools
import re

import numpy as np
import pytest

from bilm.analysis.neighbours import plane_of_directions
from bilm.embedding.embedder import ElmoEmbedder
from tests.helpers import FILES, MODEL, VOCAB, figure_of, markup_of, printed, refuse, run
from tests.models.test_bidirectional_lm import write_model

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("a dog ran\n\nthe cat sat on a mat\nThe dog barked at the cat\n")
    return tmp_path / "corpus.txt"


@pytest.mark.slow
def test_neighbours_are_sorted(corpus):
    asked = ("neighbours", "cat", "the cat sat on a mat", corpus, *MODEL)
    same = [line.split("\t") for line in printed(*asked, "--layer", 0, "--same-word").splitlines()]
    assert [row[2] for row in same] == ["the [cat] sat on a mat", "The dog barked at the [cat]"]
    assert [row[0] for row in same] == ["1.0000"] * 2  # words alone
    output = printed(*asked, "-n", 3)
    rows = [line.split("\t") for line in output.splitlines()]
    assert rows[0] == ["1.0000", "2", "the [cat] sat on a mat"]
    lines = [line.split() for line in corpus.read_text().splitlines()]
    vectors = ElmoEmbedder(*FILES).embed_batch(lines)
    cat = vectors[2][-1, 1]
    cosines = [v @ cat / np.linalg.norm(v) / np.linalg.norm(cat) for one in vectors for v in one[-1]]
    assert [float(row[0]) for row in rows] == pytest.approx(sorted(cosines)[::-1][:3], abs=1e-4)


def test_eight_words_on_either_side_are_shown(corpus):
    corpus.write_text("a b c d e f g h i cat j k l m n o p q r\n")
    shown = printed("neighbours", "cat", "cat", corpus, "--same-word", *MODEL)
    assert shown.endswith("\tb c d e f g h i [cat] j k l m n o p q\n")


def test_same_word_has_any_case_and_normal_form(corpus):
    corpus.write_text("The cafe\u0301\nThe Caf\u00e9 is a cafe\n")
    found = printed("neighbours", "caf\u00e9", "a caf\u00e9", corpus, "--same-word", *MODEL)
    assert sorted(line.split("\t")[1] for line in found.splitlines()) == ["0", "1"]


def test_words_are_counted_by_the_vocabulary_given(corpus, tmp_path):
    weights = write_model(tmp_path, n_words=73, char_cnn=None)[1]
    asked = ("--weight-file", weights, "--vocab-file", VOCAB)
    assert "not in the vocabulary" in run("neighbours", "the", "the", corpus, *asked)


def test_wrong_values_are_refused(corpus, tmp_path):
    (tmp_path / "near.png").touch()
    asked = ("neighbours", "cat", "the cat", corpus, *MODEL)
    assert "is not a word of" in refuse("neighbours", "cow", "the cat", corpus, *MODEL)
    png = ("--plot", tmp_path / "new.png", *MODEL)
    alone = refuse("neighbours", "cow", "the cow", corpus, "--same-word", *png)
    assert alone == f"{corpus}: no other occurrence of 'cow'" and not (tmp_path / "new.png").exists()
    assert "layer 3" in refuse(*asked, "--layer", 3)
    assert "reads characters and needs no vocabulary" in refuse(*asked, "--vocab-file", corpus)
    assert "--overwrite needs --plot" in refuse(*asked, "--overwrite", status=2)
    assert "exists; --overwrite" in refuse(*asked, "--plot", tmp_path / "near.png")
    assert "must end in .html, .png" in refuse(*asked, "--plot", tmp_path / "near.docx")
    message = refuse(*asked, "--overwrite", "--plot", corpus)
    assert message == f"{corpus}: it is an input and would be lost; give another name"


def test_page_has_every_layer(corpus, tmp_path):
    pytest.importorskip("plotly")
    corpus.write_text(corpus.read_text() + "a <b>cat</b> %{x} </script> sat\n")
    page = tmp_path / "near.html"
    asked = ("neighbours", "cat", "the <i> cat sat", corpus, *MODEL, "-n", 4)
    output = printed(*asked, "--layer", 1)
    page.touch()
    assert printed(*asked, "--layer", 1, "--plot", page, "--overwrite") == output
    figure = figure_of(page)
    assert [trace["visible"] for trace in figure["data"]] == [False, False, True, True, False, False]
    labels = [button["label"] for button in figure["layout"]["updatemenus"][0]["buttons"]]
    assert labels == ["layer 0 (words alone)", "layer 1", "layer 2 (top)"]
    dots, star = figure["data"][2:4]
    similarities = [float(line.split("\t")[0]) for line in output.splitlines()]
    assert dots["marker"]["color"] == pytest.approx(similarities, abs=1e-4)
    assert star["hovertext"] == ["query word<br>the &lt;i&gt; [cat] sat"]
    hover = [text for trace in figure["data"] for text in trace["hovertext"]]
    assert "line 2<br>the [cat] sat on a mat" in "\n".join(hover)
    assert not any(re.search(r"<(?!br>)", text) for text in hover)
    assert "<h1>the &lt;i&gt; [cat] sat</h1>" in markup_of(page)


def test_plane_keeps_distances():
    random = np.random.default_rng(0)
    points = random.normal(size=(6, 2)) @ random.normal(size=(2, 9))
    plane = plane_of_directions(points)
    np.testing.assert_allclose(plane.mean(axis=0), 0, atol=1e-9)
    directions = points / np.linalg.norm(points, axis=1, keepdims=True)
    for one, other in itertools.combinations(range(6), 2):
        distance = np.linalg.norm(directions[one] - directions[other])
        assert np.linalg.norm(plane[one] - plane[other]) == pytest.approx(distance)
    assert plane_of_directions(points[:1]).shape == (1, 2)
