"""The benchmarks run; what they measure is for a quiet machine."""

import pytest
from click.testing import CliRunner

from tests.benchmarks import backends, embed, operations, quality, test, train, window
from tests.corpora import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tiny")]


@pytest.mark.parametrize(
    ("benchmark", "arguments", "said"),
    [
        (train, "--preset tiny --batch-size 2 --vocab-size 40 --steps 1", "tokens/s; utilisation"),
        (test, "--preset tiny --vocab-size 40 --tokens 200", "tokens/s; utilisation"),
        (embed, "--preset tiny --sentences 3 --rounds 1", "tokens/s; "),
        (backends, "--preset tiny --sentences 3 --roads tensorflow", "tokens/s, 1.00; "),
        (window, "--preset tiny --batch-size 2 --steps 1 --forms bilm", "ms; "),
        (quality, "--batch-size 2 --steps 4 --recipe auto --set lstm.dim=64", "heldout\n         1 "),
    ],
    ids=["train", "test", "embed", "backends", "window", "quality"],
)
def test_benchmarks_run(benchmark, arguments, said, tmp_path, monkeypatch):
    monkeypatch.setattr(operations, "PRODUCT_SIZE", 64)  # how fast the machine is does not matter
    text = write(tmp_path / "text.txt", "the cat sat on the mat\na dog and the cat ran away\n" * 40)
    texts = [] if benchmark is window else ["--text", text]
    texts += ["--heldout", text] if benchmark is quality else []
    result = CliRunner().invoke(
        benchmark.main, [*arguments.split(), *map(str, texts)], catch_exceptions=False
    )
    assert result.exit_code == 0 and said in result.output, result.output
