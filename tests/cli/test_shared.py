import pytest

from tests.helpers import HELDOUT, TRAIN, VOCAB, refuse


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", ""),
        ("train", "--train-prefix", "", "--vocab-file", VOCAB, "--save-dir", "run"),
        (
            "train",
            "--train-prefix",
            TRAIN,
            "--vocab-file",
            VOCAB,
            "--save-dir",
            "run",
            "--heldout-prefix",
            "",
        ),
        ("restart", "--train-prefix", TRAIN, "--save-dir", "run", "--save-to", ""),
        ("vocab", "build", "--train-prefix", TRAIN, "--outfile", ""),
        ("dump-weights", "--save-dir", "run", "--outfile", ""),
        ("embed", "", "out.hdf5", "--save-dir", "run"),
        ("info", ""),
        ("test", "--test-prefix", HELDOUT, "--save-dir", ""),
    ],
)
def test_an_empty_name_is_refused(arguments):
    message = refuse(*arguments, status=2)
    assert message.startswith("Invalid value for ") and message.endswith("is a variable unset?")
