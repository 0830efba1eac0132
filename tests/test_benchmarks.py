"""The benchmarks run; what they measure is for a quiet machine."""

import pytest
from click.testing import CliRunner

from tests.benchmarks import backends, embed, operations, quality, test, train
from tests.corpora import write

pytestmark = pytest.mark.slow


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(operations, "PRODUCT_SIZE", 64)  # how fast the machine is does not matter
    return write(tmp_path / "text.txt", "the cat sat on the mat\na dog and the cat ran away\n" * 40)


@pytest.mark.parametrize(
    ("benchmark", "arguments"),
    [
        (train, "--batch-size 2 --vocab-size 40 --steps 1"),
        (train, "--optimizer muon --set lstm.dim=64 --steps 1"),
        (test, "--vocab-size 40 --tokens 200"),
        (embed, "--sentences 3 --rounds 1"),
        (backends, "--sentences 3 --roads tensorflow"),
    ],
    ids=["train", "train-with-muon", "test", "embed", "backends"],
)
def test_benchmarks_run(text, benchmark, arguments):
    words = ["--preset", "tiny", *arguments.split(), "--text", str(text)]
    result = CliRunner().invoke(benchmark.main, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "tokens" in result.output


def test_the_benchmark_of_quality_runs(text, tmp_path):
    arguments = ["--text", text, "--heldout", text, "--plot", tmp_path / "plot.svg"]
    arguments += "--batch-size 2 --steps 4 --validations 2 --recipe auto --set lstm.dim=64".split()
    arguments += ["--set", "n_negative_samples_batch=8", "--try", "sgd: optimizer=sgd learning_rate=0.1"]
    result = CliRunner().invoke(quality.main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("tokens/s; 300 in") == 2 and (tmp_path / "plot.svg").stat().st_size > 0
