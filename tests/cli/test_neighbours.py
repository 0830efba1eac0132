"""`bilm neighbours`: the nearest words of a text."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from bilm.analysis.vector_plot import principal_plane
from bilm.cli import main
from bilm.embedding.embedder import ElmoEmbedder
from tests.helpers import GOLDEN, refuse, run

CHAR = GOLDEN / "char"
FILES = (CHAR / "options.json", CHAR / "weights.hdf5")
MODEL = ("--options-file", FILES[0], "--weight-file", FILES[1])


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("a dog ran\n\nthe cat sat on a mat\nThe dog barked at the cat\n")
    return tmp_path / "corpus.txt"


@pytest.mark.usefixtures("opened_once")
def test_the_nearest_come_first(corpus):
    output = run("neighbours", "cat", "the cat sat on a mat", corpus, *MODEL, "-n", 3)
    rows = [line.split("\t") for line in output.splitlines()]
    assert rows[0] == ["1.0000", "2", "the [cat] sat on a mat"]
    lines = [line.split() for line in corpus.read_text().splitlines()]
    vectors = ElmoEmbedder(*FILES).embed_batch(lines)
    cat = vectors[2][-1, 1]
    cosines = [v @ cat / np.linalg.norm(v) / np.linalg.norm(cat) for one in vectors for v in one[-1]]
    assert [float(row[0]) for row in rows] == pytest.approx(sorted(cosines)[::-1][:3], abs=1e-4)


def test_the_same_word_in_the_word_layer_is_the_same(corpus):
    output = run("neighbours", "cat", "cat", corpus, *MODEL, "--layer", 0, "--same-word")
    assert output.splitlines() == [
        "1.0000\t2\tthe [cat] sat on a mat",
        "1.0000\t3\tThe dog barked at the [cat]",
    ]


def test_the_text_may_come_through_standard_input(corpus):
    arguments = ["neighbours", "cat", "cat", "-", *map(str, MODEL), "--layer", "0", "--same-word"]
    result = CliRunner().invoke(main, arguments, input=corpus.read_bytes())
    assert result.output.splitlines()[0] == "1.0000\t2\tthe [cat] sat on a mat"


def test_bad_input(corpus):
    assert "is not a word of" in refuse("neighbours", "cow", "the cat", corpus, *MODEL)
    assert "--save-dir and optionally --checkpoint" in refuse(
        "neighbours", "cat", "the cat", corpus, status=2
    )
    assert "layer 3" in refuse("neighbours", "cat", "the cat", corpus, *MODEL, "--layer", 3)


@pytest.mark.usefixtures("opened_once")
def test_plot(corpus, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "near.png"
    asked = ("neighbours", "cat", "the cat $ sat", corpus, *MODEL, "-n", 4, "--plot", picture)
    run(*asked)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "exists; --overwrite" in refuse(*asked)
    run(*asked, "--overwrite")
    assert "cannot be drawn" in refuse(*asked[:-1], tmp_path / "near.docx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "near.png"]


def test_the_corpus_is_not_drawn_over(corpus):
    asked = ("neighbours", "cat", "the cat", corpus, *MODEL, "--overwrite", "--plot")
    assert refuse(*asked, corpus) == f"{corpus}: it is an input and would be lost; give another name"


def test_plot_without_matplotlib(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    asked = ("neighbours", "cat", "the cat", corpus, *MODEL, "--plot", tmp_path / "near.png")
    assert "pip install 'bilm[plot]'" in refuse(*asked)


def test_principal_plane_keeps_distances_of_points_in_a_plane():
    random = np.random.default_rng(0)
    points = random.normal(size=(6, 2)) @ random.normal(size=(2, 9)) + 5.0
    plane = principal_plane(points)
    for one, other in itertools.combinations(range(6), 2):
        distance = np.linalg.norm(points[one] - points[other])
        assert np.linalg.norm(plane[one] - plane[other]) == pytest.approx(distance)
    assert principal_plane(points[:1]).shape == (1, 2)
