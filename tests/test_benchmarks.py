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
        (train, ["--preset", "tiny", "--batch-size", "2", "--vocab-size", "40", "--steps", "1"]),
        (
            train,
            ["--preset", "tiny", "--optimizer", "muon", "--set", "lstm.dim=64", "--steps", "1", "--no-parts"],
        ),
        (test, ["--preset", "tiny", "--batch-size", "2", "--vocab-size", "40", "--steps", "1"]),
        (embed, ["--preset", "tiny", "--sentences", "3", "--rounds", "1"]),
        (backends, ["--preset", "tiny", "--sentences", "3", "--roads", "tensorflow"]),
    ],
)
def test_benchmarks_run(text, benchmark, arguments):
    result = CliRunner().invoke(benchmark.main, [*arguments, "--text", str(text)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "tokens" in result.output


def test_the_benchmark_of_quality_runs(text, tmp_path):
    arguments = ["--text", text, "--heldout", text, "--batch-size", 2, "--steps", 4, "--validations", 2]
    arguments += [
        "--set",
        "lstm.dim=64",
        "--set",
        "n_negative_samples_batch=8",
        "--plot",
        tmp_path / "plot.svg",
    ]
    arguments += ["--recipe", "auto", "--try", "sgd: optimizer=sgd learning_rate=0.1"]
    result = CliRunner().invoke(quality.main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("tokens/s; 300 in") == 2 and (tmp_path / "plot.svg").stat().st_size > 0
