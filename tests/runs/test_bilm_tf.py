"""Scripts in the form of those in bilm-tf's ``bin``, as users edit them: their options, the same imports."""

import json
import shutil

import numpy as np
import pytest

import bilm
from bilm import training
from bilm.data import BidirectionalLMDataset, LMDataset, UnicodeCharsVocabulary
from bilm.errors import OptionsError
from bilm.training import load_options_latest_checkpoint, load_vocab, train
from tests.helpers import CHAR, HELDOUT, TRAIN, VOCAB, newest, newest_arrays, small_options

TRAIN_ELMO = """
from bilm.training import train, load_options_latest_checkpoint, load_vocab
from bilm.data import BidirectionalLMDataset

vocab = load_vocab(vocab_file, 50)
options = {**of_the_model, "n_epochs": 2, "n_train_tokens": 120, "n_tokens_vocab": vocab.size}
options["batch_size"], options["unroll_steps"], options["all_clip_norm_val"] = 4, 5, 10.0
data = BidirectionalLMDataset(train_prefix, vocab, test=False, shuffle_on_load=True)
train(options, data, 1, save_dir, save_dir)
"""
RESTART = """
from bilm.training import train, load_options_latest_checkpoint, load_vocab
from bilm.data import LMDataset, BidirectionalLMDataset

options, ckpt_file = load_options_latest_checkpoint(save_dir)
vocab = load_vocab(vocab_file, options["char_cnn"]["max_characters_per_token"])
data = BidirectionalLMDataset(train_prefix, vocab, test=False, shuffle_on_load=True)
options["n_train_tokens"] = 100
options["n_epochs"] = 1
options["batch_size"] = 2
train(options, data, 1, save_dir, save_dir, restart_ckpt_file=ckpt_file)
"""
RUN_TEST = """
from bilm.training import test, load_options_latest_checkpoint, load_vocab
from bilm.data import LMDataset, BidirectionalLMDataset

options, ckpt_file = load_options_latest_checkpoint(save_dir)
vocab = load_vocab(vocab_file, 50)
data = BidirectionalLMDataset(test_prefix, vocab, test=True, shuffle_on_load=False)
perplexity = test(options, ckpt_file, data, batch_size=2)
"""
DUMP = """
from bilm.training import dump_weights

dump_weights(save_dir, outfile)
"""


def test_edited_scripts(tmp_path):
    save_dir, outfile = str(tmp_path / "run"), str(tmp_path / "weights.hdf5")
    texts = {"train_prefix": str(TRAIN), "test_prefix": str(HELDOUT), "vocab_file": str(VOCAB)}
    of_the_model = small_options(char_cnn={"max_characters_per_token": 50})
    names = texts | {"save_dir": save_dir, "outfile": outfile, "of_the_model": of_the_model}
    exec(TRAIN_ELMO, names)
    assert newest(save_dir).endswith("model.ckpt-12")  # 2 epochs of 120 tokens, 20 in a batch
    options = json.loads((tmp_path / "run" / "options.json").read_text())
    assert (options["optimizer"], options["learning_rate"]) == ("adagrad", 0.2)
    assert not options["variational_dropout"] and options["softmax_bias_init"] == "zeros"
    exec(RESTART, names)
    assert newest(save_dir).endswith("model.ckpt-22")  # 100 more tokens, 10 in a batch
    exec(RUN_TEST, names)
    same = bilm.test(HELDOUT, save_dir, batch_size=2, compat="bilm-tf")
    assert names["perplexity"] == same.perplexity
    exec(DUMP, names)
    assert bilm.ElmoEmbedder.from_model(outfile).embed_sentence(["So", "it", "does"]).shape == (3, 3, 8)


def test_the_perplexity_is_that_of_bilm_tf(capsys):
    [(batch_size, expected), *_] = json.loads((CHAR / "expected.json").read_text())[
        "test_perplexity_by_batch_size"
    ].items()
    options, checkpoint = load_options_latest_checkpoint(CHAR / "final")
    data = BidirectionalLMDataset(HELDOUT, load_vocab(VOCAB, 50), test=True)
    perplexity = training.test(options, checkpoint, data, batch_size=int(batch_size))
    np.testing.assert_allclose(perplexity, expected, rtol=2e-6)
    assert f"AVERAGE PERPLEXITY = {perplexity}" in capsys.readouterr().err


def test_a_restart_elsewhere_leaves_the_checkpoint_and_keeps_bilm_tf_s_dropout(tmp_path):
    source = shutil.copytree(CHAR / "final", tmp_path / "theirs")
    before = newest_arrays(source)
    options, checkpoint = load_options_latest_checkpoint(source)
    data = BidirectionalLMDataset(TRAIN, load_vocab(VOCAB, 50))
    result = train(options, data, 1, tmp_path / "ours", None, checkpoint, max_steps=1)
    assert result.step == 13 and str(result.saved) == str(tmp_path / "ours" / "model.ckpt-13")
    assert newest_arrays(source).keys() == before.keys()
    written = json.loads((tmp_path / "ours" / "options.json").read_text())
    assert written["variational_dropout"] is False


def test_what_is_wrong(tmp_path):
    options, checkpoint = load_options_latest_checkpoint(CHAR / "final")
    data, text = (LMDataset(HELDOUT, load_vocab(VOCAB, 50), test=is_test) for is_test in (False, True))
    bare = LMDataset(TRAIN, UnicodeCharsVocabulary.from_words(["a"]))
    for call, message in (
        (lambda: train(options, text, 1, tmp_path), "with test=False"),
        (lambda: training.test(options, checkpoint, data), "with test=True"),
        (
            lambda: training.test(options | {"lstm": {}}, checkpoint, text),
            "lstm differ from those of .*ckpt-12",
        ),
        (lambda: training.test(options, tmp_path / "weights", text), "'weights'"),
        (lambda: train(options, bare, 1, tmp_path), "its vocabulary has no file"),
    ):
        with pytest.raises(OptionsError, match=message):
            call()


def test_a_log_directory_elsewhere_is_told(tmp_path, caplog):
    options, _ = load_options_latest_checkpoint(CHAR / "final")
    data = BidirectionalLMDataset(TRAIN, load_vocab(VOCAB, 50))
    train(options, data, 1, tmp_path / "run", tmp_path / "logs", dry_run=True)
    assert "tf_log_dir: TensorBoard's files are written to" in caplog.text
