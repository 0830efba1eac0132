import itertools
import random
from collections import Counter

import numpy as np
import pytest

from bilm.data import BidirectionalLMDataset, LMDataset
from tests.corpora import WORDS, golden, write
from tests.helpers import VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_batches_of_the_reference_classes(variant):
    path, vocab, expected = golden(variant)
    dataset = (LMDataset if variant == "char-forward" else BidirectionalLMDataset)(str(path), vocab)
    assert dataset.max_word_length == (None if variant == "word-shared" else 50)
    assert dataset.vocab is vocab
    seen = set()
    for number, batch in enumerate(itertools.islice(dataset.iter_batches(4, 20), 3)):
        for name, array in batch.items():
            if variant == "word-shared" and "characters" in name:
                assert array is None
                continue
            seen.add(f"batch{number}/{name}")
            assert array.dtype == np.int32
            np.testing.assert_array_equal(array, expected[f"batch{number}/{name}"])
    assert seen == set(expected.files)


def test_reference_dataset_in_test_mode(tmp_path):
    write(tmp_path / "1", "a b\n")
    write(tmp_path / "2", "c\n\n")
    dataset = LMDataset(str(tmp_path / "*"), WORDS, test=True)
    sentences = [ids.tolist() for ids, _ in dataset.get_sentence()]
    assert sentences == [[0, 5, 1], [0, 1], [0, 3, 4, 1]], "the last shard comes first"
    assert list(dataset.iter_batches(1, 1)) == []
    dataset = LMDataset(tmp_path, WORDS, reverse=True, test=True)
    assert [ids.tolist() for ids, _ in dataset.get_sentence()] == [[1, 5, 0], [1, 0], [1, 4, 3, 0]]
    batches = BidirectionalLMDataset(tmp_path, WORDS, test=True).iter_batches(2, 2)
    (batch,) = batches
    assert batch["token_ids"].tolist() == [[0, 5], [0, 0]]
    assert batch["next_token_id_reverse"].tolist() == [[5, 0], [0, 4]]


def test_reference_dataset_goes_on_and_shuffles_both_directions_alike(tmp_path):
    for k in range(3):
        write(tmp_path / str(k), "".join(f"{word}\n" for word in "abcabc"[k:]))

    def words():
        random.seed(3)
        batches = BidirectionalLMDataset(tmp_path, WORDS, shuffle_on_load=True).iter_batches(1, 2)
        batches = list(itertools.islice(batches, 30))
        forward = [batch["token_ids"][0, 1] for batch in batches]
        assert forward == [batch["token_ids_reverse"][0, 1] for batch in batches]
        return forward

    assert Counter(words()[:15]) == Counter(words()[15:]) == {3: 4, 4: 5, 5: 6}
    assert words() == words()
