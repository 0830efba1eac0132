"""The one check of ids."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.data.batcher import Batcher, TokenBatcher, batch_to_ids
from bilm.errors import DataError
from bilm.models.sentence_encoder import IdKind
from bilm.vocabulary.vocabulary import Vocabulary

KINDS = {"bare": IdKind(261, 50, has_marks=False), "marked": IdKind(261, 50), "words": IdKind(5)}
SENTENCES = [["the", "cat"], ["a"], []]
VOCABULARY = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "cat", "a"])
IDS = {
    "bare": batch_to_ids(SENTENCES),
    "marked": Batcher(None, 50).batch_sentences(SENTENCES),
    "words": TokenBatcher(VOCABULARY).batch_sentences(SENTENCES),
}
each_kind = pytest.mark.parametrize("name", KINDS)


@each_kind
@pytest.mark.parametrize("dtype", ["int64", "uint16", "float32"])
def test_ids_become_int32(name, dtype):
    for ids in (IDS[name].astype(dtype), tf.constant(IDS[name].astype(dtype)), IDS[name].tolist()):
        found = KINDS[name].checked(ids)
        assert found.dtype == tf.int32
        np.testing.assert_array_equal(found, IDS[name])


def changed(name, place, value):
    ids = IDS[name].astype("float64")
    ids[place] = value
    return ids


@each_kind
def test_wrong_values_are_named(name):
    largest, ids = KINDS[name].largest, IDS[name]
    for found, wrong in {
        "-1.0 to": changed(name, (0, 1), -1),
        f"0.0 to {largest + 1}": changed(name, (0, 1), largest + 1),
        "nan to nan": changed(name, (0, 1), np.nan),
        "row 0 with words after padding": changed(name, (0, 0), 0),
        "no row": ids[:0],
        "a tensor without values or a sparse one": tf.sparse.from_dense(ids),
        "bool": ids > 0,
        "str": ids.astype(str),
        "object": [None],
        "no array": [[1], [1, 2]],
    }.items():
        with pytest.raises(DataError, match=f"whole numbers .*0 .padding. to {largest}, got {found}"):
            KINDS[name].checked(wrong)


def test_types_too_small_for_the_ids_are_refused():
    assert KINDS["words"].checked(IDS["words"].astype("uint8")).dtype == tf.int32
    with pytest.raises(DataError, match="got uint8"):
        KINDS["bare"].checked(IDS["bare"].astype("uint8"))


@pytest.mark.parametrize(
    ("name", "shapes", "wanted"),
    [
        ("bare", [(50,), (2, 50), (2, 3, 49), (2, 3, 4, 20)], r"\(rows, words, 50\)"),
        ("marked", [(2, 50), (2, 3, 49), (1, 2, 3, 50), (2, 0, 50), (2, 1, 50)], r"\(rows, words \+ 2, 50\)"),
        ("words", [(2,), (2, 3, 50), (2, 0)], r"\(rows, words \+ 2\)"),
    ],
)
def test_wrong_shapes_are_named(name, shapes, wanted):
    for shape in shapes:
        for values in (np.ones(shape, int), keras.KerasTensor((None, *shape[1:]), dtype="int32")):
            with pytest.raises(DataError, match=f"whole numbers {wanted}, .* got int.* makes them"):
                KINDS[name].checked(values)


def test_wrong_sentence_marks_are_named():
    for name, ids, message in (
        ("marked", IDS["bare"], r"without the sentence marks; `Batcher\(None, 50\)`"),
        ("bare", IDS["marked"], r"ids with sentence marks.*`batch_to_ids\(..., 50\)`"),
        ("words", [[1, 4, 2], [4, 5, 0]], "word ids without the sentence marks; `TokenBatcher`"),
    ):
        with pytest.raises(DataError, match=message):
            KINDS[name].checked(ids)
    KINDS["bare"].checked(batch_to_ids([["<S>", "a", "</S>"], ["a"]]))
    assert KINDS["bare"].checked(batch_to_ids([[], []])).shape == (2, 0, 50)
    assert KINDS["marked"].checked(np.zeros((2, 3, 50), int)).shape == (2, 3, 50)
    assert KINDS["bare"].checked(np.stack([IDS["bare"]] * 2)).shape == (2, 3, 2, 50)


@each_kind
def test_graph_checks_values(name):
    kind, ids = KINDS[name], IDS[name].astype("float32")
    run = tf.function(kind.checked, input_signature=[tf.TensorSpec([None] * ids.ndim, tf.float32)])
    np.testing.assert_array_equal(run(ids), ids)
    assert run(ids[:0]).shape[0] == 0
    wrong = [changed(name, (0, 0), -1), ids + kind.largest, changed(name, (0, -1), 0.5)]
    if kind.width:  # as ids that were cast to uint8
        wrong.append(changed(name, (0, 0, 0), 7))
    for values in wrong:
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be whole numbers .*to"):
            run(values.astype("float32"))
