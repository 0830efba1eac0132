"""Classify sentences with and without ELMo: a Keras model from strings to labels.

    python examples/sentiment.py --train train.tsv --test test.tsv \
        --options-file options.json --weight-file weights.hdf5

A line of the files is a label, a tab and a tokenised sentence, with two or more different labels. Two models
are trained on the same lines: one averages its own word embeddings, the other averages ELMo vectors, a
learned mix of the biLM's layers. In the second, `SentenceVectorizer` and `Elmo` take strings, so that the
saved model needs no other preprocessing; the biLM runs in every epoch. For many epochs on many sentences,
compute its layers once, as `pos_tagging.py` does. A random tenth of the training lines is used for early
stopping.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bilm import Elmo, SentenceVectorizer
from bilm.errors import BilmError, DataError
from bilm.io.lines import read_lines

EMBEDDING_DIM = 64
LEARNING_RATE = 0.005
DROPOUT = 0.5


def read_labelled(path: Path) -> tuple[list[str], list[str]]:
    """Read the labels and sentences of a file.

    Raises:
        DataError: the file cannot be read, is empty, or has a line of another form.
    """
    labels, sentences = [], []
    for number, line in enumerate(read_lines(path), start=1):
        label, tab, sentence = line.partition("\t")
        if not line.strip():
            continue
        if not (label.strip() and tab and sentence.split()):
            raise DataError(f"{path} line {number}: is not LABEL<TAB>SENTENCE: {line[:60]!r}")
        labels.append(label.strip())
        sentences.append(" ".join(sentence.split()))
    if not labels:
        raise DataError(f"{path}: there are no sentences in it")
    return labels, sentences


def bag_of_words(sentences: Sequence[str], n_labels: int) -> keras.Model:
    """Build a classifier of the mean of word embeddings that are learned from scratch."""
    words = keras.layers.TextVectorization(standardize=None, split="whitespace")
    words.adapt(list(sentences))
    text = keras.Input((), dtype="string")
    vectors = keras.layers.Embedding(words.vocabulary_size(), EMBEDDING_DIM, mask_zero=True)(words(text))
    return _classifier(text, vectors, n_labels)


def bag_of_elmo(options_file: Path, weight_file: Path, n_labels: int) -> keras.Model:
    """Build a classifier of the mean of ELMo vectors; only the mix of the biLM's layers is learned."""
    text = keras.Input((), dtype="string")
    elmo = Elmo(options_file, weight_file, l2_coef=0.001)
    options = elmo.encoder.options
    if options.char_cnn is None:
        raise DataError(f"{options_file}: a model of words; give one of characters")
    ids = SentenceVectorizer(options.char_cnn.max_characters_per_token, options.unicode_form)(text)
    return _classifier(text, elmo(ids), n_labels)


def _classifier(text: keras.KerasTensor, vectors: keras.KerasTensor, n_labels: int) -> keras.Model:
    mean = keras.layers.GlobalAveragePooling1D()(vectors)  # padding is masked
    logits = keras.layers.Dense(n_labels)(keras.layers.Dropout(DROPOUT)(mean))
    model = keras.Model(text, logits)
    model.compile(
        keras.optimizers.Adam(LEARNING_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    return model


def train_and_test(
    model: keras.Model,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    epochs: int,
) -> float:
    """Train, and return the test accuracy of the epoch that is best on a heldout tenth."""
    stop = keras.callbacks.EarlyStopping("val_accuracy", mode="max", patience=5, restore_best_weights=True)
    sentences, labels = train
    n_heldout = max(1, len(labels) // 10)
    model.fit(
        tf.constant(sentences[n_heldout:]),
        labels[n_heldout:],
        validation_data=(tf.constant(sentences[:n_heldout]), labels[:n_heldout]),
        epochs=epochs,
        callbacks=[stop],
        verbose=0,
    )
    return model.evaluate(tf.constant(test[0]), test[1], verbose=0, return_dict=True)["accuracy"]


def main() -> None:
    """Train both models and print their accuracies."""
    parser = argparse.ArgumentParser(description="Sentence classification with and without ELMo.")
    parser.add_argument("--train", type=Path, required=True, help="LABEL<TAB>SENTENCE per line")
    parser.add_argument("--test", type=Path, required=True, help="test file, in the same form")
    parser.add_argument("--options-file", type=Path, required=True, help="options of the biLM")
    parser.add_argument("--weight-file", type=Path, required=True, help="HDF5 weights of the biLM")
    parser.add_argument("--epochs", type=int, default=40, help="maximum number of epochs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="%(default)s")
    args = parser.parse_args()

    (train_labels, train_sentences), (test_labels, test_sentences) = map(
        read_labelled, (args.train, args.test)
    )
    if len({*train_labels}) < 2:
        raise DataError(f"{args.train}: has one label alone; give lines with two or more")
    names = sorted({*train_labels, *test_labels})
    order = np.random.default_rng(args.seed).permutation(len(train_labels))
    train = (
        np.array(train_sentences, object)[order],
        np.array([names.index(label) for label in train_labels])[order],
    )
    test = np.array(test_sentences, object), np.array([names.index(label) for label in test_labels])
    print(f"{len(train[1]):,} training and {len(test[1]):,} test sentences, labels {', '.join(names)}")

    share = np.mean(test[1] == np.bincount(train[1]).argmax())
    print(f"most frequent label      {share:.4f}")
    keras.utils.set_random_seed(args.seed)
    own = bag_of_words(train_sentences, len(names))
    print(f"bag of own embeddings    {train_and_test(own, train, test, args.epochs):.4f}")
    keras.utils.set_random_seed(args.seed)
    elmo = bag_of_elmo(args.options_file, args.weight_file, len(names))
    print(f"bag of ELMo              {train_and_test(elmo, train, test, args.epochs):.4f}")


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
