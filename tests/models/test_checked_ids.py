"""The one check of ids."""

from __future__ import annotations

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bilm.data.batcher import Batcher, TokenBatcher, batch_to_ids
from bilm.errors import DataError
from bilm.models.checked_ids import IdKind
from bilm.vocabulary.vocabulary import Vocabulary

BARE, MARKED = (
    IdKind.characters(50, has_marks=has_marks, nested=not has_marks) for has_marks in (False, True)
)
WORDS = IdKind(5)
SENTENCES = [["the", "cat"], ["a"], []]
IDS = {BARE: batch_to_ids(SENTENCES), MARKED: Batcher(None, 50).batch_sentences(SENTENCES)}
IDS[WORDS] = TokenBatcher(Vocabulary.from_words(["<S>", "</S>", "<UNK>", "cat", "a"])).batch_sentences(
    SENTENCES
)
KINDS = pytest.mark.parametrize("kind", [BARE, MARKED, WORDS], ids=["bare", "marked", "words"])


@KINDS
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", "float32", "float64"])
def test_right_ids_are_taken_as_int32(kind, dtype):
    for ids in (IDS[kind].astype(dtype), tf.constant(IDS[kind].astype(dtype)), IDS[kind].tolist()):
        found = kind.checked(ids)
        assert found.dtype == tf.int32
        np.testing.assert_array_equal(found, IDS[kind])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, ml_dtypes.bfloat16])
def test_a_type_that_holds_the_largest_id_will_do(dtype):
    assert WORDS.checked(IDS[WORDS].astype(dtype)).dtype == tf.int32


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", [BARE, MARKED], ids=["bare", "marked"])
def test_a_type_in_which_ids_wrap_is_refused(kind, dtype):
    name = np.dtype(dtype).name
    with np.errstate(invalid="ignore"):
        ids = IDS[kind].astype(dtype)
    for values in (ids, keras.KerasTensor(ids.shape, dtype=name)):
        with pytest.raises(DataError, match=f"character ids go up to 261, which {name} cannot hold"):
            kind.checked(values)
    with pytest.raises(DataError, match="which float16 cannot hold"):
        IdKind(3000).checked(IDS[WORDS].astype("float16"))


def changed(ids, place, value):
    ids = ids.copy()
    ids[place] = value
    return ids


@KINDS
def test_values(kind):
    ids = IDS[kind].astype("float64")
    with pytest.raises(DataError, match=f"0 .padding. to {kind.largest}, got -1.0 to"):
        kind.checked(changed(ids, (0, 1), -1))
    with pytest.raises(DataError, match=f"got 0.0 to {kind.largest + 1}"):
        kind.checked(changed(ids, (0, 1), kind.largest + 1))
    for value in (1.5, np.nan):
        with pytest.raises(DataError, match=f"must be whole numbers, got {value}"):
            kind.checked(changed(ids, (0, 1), value))
    with pytest.raises(DataError, match="row 0: has words after padding"):
        kind.checked(changed(ids, (0, 0), 0))
    with pytest.raises(DataError, match="of at least one row"):
        kind.checked(ids[:0])
    with pytest.raises(DataError, match="got a tensor without values or a sparse one"):
        kind.checked(tf.sparse.from_dense(IDS[kind]))
    for wrong in (IDS[kind] > 0, IDS[kind].astype(str), IDS[kind].astype(complex), [None], [[1], [1, 2]]):
        with pytest.raises(DataError, match="must be"):
            kind.checked(wrong)


def test_ids_that_wrapped_before():
    with pytest.raises(DataError, match="do not begin with 259"):
        BARE.checked(IDS[BARE] % 256)


@pytest.mark.parametrize(
    ("kind", "shapes", "wanted"),
    [
        (BARE, [(50,), (2, 50), (2, 3, 49), (2, 3, 4, 20)], r"\(rows, words, 50\)"),
        (MARKED, [(2, 50), (2, 3, 49), (1, 2, 3, 50), (2, 0, 50), (2, 1, 50)], r"\(rows, words \+ 2, 50\)"),
        (WORDS, [(2,), (2, 3, 50), (2, 0)], r"\(rows, words \+ 2\)"),
    ],
    ids=["bare", "marked", "words"],
)
def test_shapes(kind, shapes, wanted):
    for shape in shapes:
        for values in (np.ones(shape, int), keras.KerasTensor((None, *shape[1:]), dtype="int32")):
            with pytest.raises(DataError, match=f"ids must be integers {wanted}, got int.* makes them"):
                kind.checked(values)


def test_no_rows_inside():
    with pytest.raises(DataError, match="of at least one row, got int64"):
        BARE.checked(np.zeros((2, 0, 3, 50), np.int64))


def test_sentence_marks():
    with pytest.raises(DataError, match=r"row 0: .*without the sentence marks; `Batcher\(None, 50\)`"):
        MARKED.checked(IDS[BARE])
    with pytest.raises(DataError, match=r"ids with sentence marks.*`batch_to_ids\(sentences, 50\)`"):
        BARE.checked(IDS[MARKED])
    with pytest.raises(DataError, match="row 1: word ids without the sentence marks; `TokenBatcher`"):
        WORDS.checked([[1, 4, 2], [4, 5, 0]])
    BARE.checked(batch_to_ids([["<S>", "a", "</S>"], ["a"]]))


def test_sentences_without_words():
    assert BARE.checked(batch_to_ids([[], []])).shape == (2, 0, 50)
    assert MARKED.checked(np.zeros((2, 3, 50), int)).shape == (2, 3, 50)
    assert BARE.checked(np.stack([IDS[BARE]] * 2)).shape == (2, 3, 2, 50)


@KINDS
def test_the_range_is_checked_where_a_graph_runs(kind):
    rank = IDS[kind].ndim
    run = tf.function(kind.checked, input_signature=[tf.TensorSpec([None] * rank, tf.float32)])
    np.testing.assert_array_equal(run(IDS[kind].astype("float32")), IDS[kind])
    assert run(np.zeros((0, *IDS[kind].shape[1:]), "float32")).shape[0] == 0
    for wrong in (changed(IDS[kind], (0, 0), -1), IDS[kind] + kind.largest, IDS[kind] + 0.5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be whole numbers, 0 .padding. to"):
            run(wrong.astype("float32"))


def test_the_width_is_checked_where_a_graph_runs():
    run = tf.function(BARE.checked, input_signature=[tf.TensorSpec([None, None, None], tf.int32)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="50"):
        run(IDS[BARE][..., :20].astype("int32"))
    run = tf.function(BARE.checked, input_signature=[tf.TensorSpec(None, tf.int32)])
    with pytest.raises(DataError, match="unknown"):
        run(IDS[BARE])
