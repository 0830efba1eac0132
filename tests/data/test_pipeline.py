"""Batches: windows of the rows of a text, their words, and going on from a position."""

import dataclasses
import itertools
import json
import pickle
import random
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.data import BidirectionalLMDataset, LMDataset, stream
from bilm.data.pipeline import Rows, compact
from bilm.data.stream import Block, Order, Place, Position, encode_sentences, sentence_stream
from bilm.errors import DataError, VocabularyError
from bilm.io import lines as text
from bilm.io.json_objects import JsonObject
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from tests.corpora import (
    CHARACTERS,
    MARKS,
    WORDS,
    character_cnn,
    expand,
    golden,
    sentences_of_words,
    training,
    write,
)
from tests.helpers import VARIANTS


def assert_first_window(sentences, inputs, targets):
    rows = Rows([Block(sentences, Place())], WORDS, [None] * 2)
    first = next(rows.windows(4, bidirectional=True))
    assert first.inputs.tolist() == inputs
    assert first.targets.tolist() == targets


def test_windows_read_in_order():
    sentences = encode_sentences([" ".join("abc"[k % 3] * k) for k in range(6)], WORDS)
    inputs = [[[0, 0, 4, 0], [0, 3, 3, 3]], [[1, 1, 4, 1], [1, 3, 3, 3]]]
    assert_first_window(sentences, inputs, [[[1, 4, 1, 5], [3, 3, 3, 1]], [[0, 4, 0, 5], [3, 3, 3, 0]]])


def test_passage_stays_in_one_row():
    sentences = encode_sentences(["a b", "c c", "b", "a"], WORDS).in_passages(6)  # the first two, the others
    inputs = [[[0, 3, 4, 0], [0, 4, 0, 3]], [[1, 5, 5, 1], [1, 3, 1, 4]]]
    assert_first_window(sentences, inputs, [[[3, 4, 1, 5], [4, 1, 3, 1]], [[5, 5, 0, 4], [3, 0, 4, 0]]])


def assert_same_batches(batches, dictionaries, has_characters):
    for batch, expected in zip(batches, dictionaries, strict=True):
        for direction, suffix in enumerate(["", "_reverse"][: len(batch.targets)]):
            np.testing.assert_array_equal(batch.targets[direction].T, expected[f"next_token_id{suffix}"])
            if has_characters:
                characters = expand(batch)[direction]
                np.testing.assert_array_equal(characters, expected[f"tokens_characters{suffix}"])
            else:
                np.testing.assert_array_equal(batch.token_types[direction].T, expected[f"token_ids{suffix}"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_batches_of_training(variant):
    path, vocab, expected = golden(variant)
    shape = {"batch_size": 4, "unroll_steps": 20, "max_filter_width": 4}
    batches = training([path], vocab, bidirectional=variant != "char-forward", shuffle=False, **shape)
    dictionaries = [
        {name.partition("/")[2]: expected[name] for name in expected.files if name.startswith(f"batch{k}/")}
        for k in range(3)
    ]
    first = [one for ((one,), _) in itertools.islice(batches, 3)]
    assert_same_batches(first, dictionaries, variant != "word-shared")
    assert {batch.targets.dtype for batch in first} == {np.dtype(np.int32)}


def plain_batches(sentences, n_rows, n_steps):
    """A row takes token after token, and the next sentence when its own ends."""
    rows = [[] for _ in range(n_rows)]
    while True:
        taken = []
        for row in rows:
            for _ in range(n_steps):
                if len(row) < 2:
                    following = next(sentences, None)
                    if following is None:
                        return
                    ids, characters = following
                    row[:] = zip(ids, ids if characters is None else characters, strict=True)
                taken.append((*row.pop(0), row[0][0]))
        names = ("token_ids", "tokens_characters", "next_token_id")
        arrays = (np.array(values) for values in zip(*taken, strict=True))
        yield {
            name: array.reshape(n_rows, n_steps, *array.shape[1:])
            for name, array in zip(names, arrays, strict=True)
        }


@given(sentences_of_words, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_batches_match_the_reference(tmp_path_factory, sentences, n_rows, n_steps, of_words):
    vocab = WORDS if of_words else CHARACTERS
    path = tmp_path_factory.mktemp("corpus") / "text"
    write(path, "".join(" ".join(words) + "\n" for words in sentences))
    forward, backward = (
        plain_batches(LMDataset(path, vocab, reverse, test=True).get_sentence(), n_rows, n_steps)
        for reverse in (False, True)
    )
    reference = [
        batch | {f"{name}_reverse": array for name, array in turned.items()}
        for batch, turned in zip(forward, backward, strict=True)
    ]
    blocks = sentence_stream([path], vocab, Order(), endless=False, keep_blank=True)
    windows = Rows(blocks, vocab, [None] * n_rows).windows(n_steps, bidirectional=True)
    batches = [compact(window, vocab, character_cnn(vocab, 3)) for window in windows]
    assert_same_batches(batches, reference, not of_words)


def test_memory_is_bounded_by_the_shuffle_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(text, "_BUFFER_BYTES", 1 << 14)
    monkeypatch.setattr(stream, "_ENCODE_TOKENS", 1 << 8)

    def peak(n_lines, shuffle_buffer):
        path = write(tmp_path / "text", f"{'a b c ' * 10}\n" * n_lines)
        options = {"batch_size": 2, "unroll_steps": 100, "bidirectional": True}
        tracemalloc.start()
        batches = training([path], WORDS, shuffle_buffer=shuffle_buffer, **options)
        for _ in itertools.takewhile(lambda batch: not batch.position.place.epoch, batches):
            pass
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(100, 100)  # what is only made once
    longer = peak(1600, 100)
    assert longer < 1.2 * peak(400, 100)
    assert peak(1600, 800) > 2 * longer


@given(st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=20), st.integers(1, 5))
def test_words_are_in_the_narrowest_bucket(words, filter_width):
    vocab = UnicodeCharsVocabulary.from_words(MARKS, 14)
    block = Block(encode_sentences([" ".join(words)], vocab), Place())
    (window,) = Rows([block], vocab, [None]).windows(len(words) + 1, bidirectional=False)
    cnn = character_cnn(vocab, filter_width)
    batch, widths = compact(window, vocab, cnn), cnn.bucket_widths
    assert {*batch.type_words.tolist()} == {-1, vocab.bos}  # an unknown word has no row
    assert tuple(part.shape[1] for part in batch.type_characters) == widths
    rows = [tuple(row.tolist()) for part in batch.type_characters for row in part]
    assert len(set(rows)) == len(rows)
    for narrower, part in zip((0, *widths), batch.type_characters, strict=False):
        for row in part:
            needed = min(14, int((row != 260).sum()) + filter_width)
            assert narrower < needed <= part.shape[1]


def test_replicas_divide_a_window(tmp_path):
    path = write(tmp_path / "text", "a b c a\nb dd\nc c\na b dd ee\n")
    options = {"unroll_steps": 3, "bidirectional": True, "max_filter_width": 2, "seed": 5}
    whole = training([path], CHARACTERS, batch_size=6, **options)
    parts = training([path], CHARACTERS, batch_size=2, n_replicas=3, **options)
    for ((one,), _), (three, _) in itertools.islice(zip(whole, parts, strict=False), 9):
        np.testing.assert_array_equal(one.targets, np.concatenate([part.targets for part in three], axis=2))
        np.testing.assert_array_equal(expand(one), np.concatenate([expand(part) for part in three], axis=1))


def test_missing_marks_are_refused(tmp_path):
    path = write(tmp_path / "text", "a\n")
    options = {"batch_size": 1, "unroll_steps": 1, "bidirectional": False}
    with pytest.raises(VocabularyError, match="lacks <S> or </S>"):
        next(training([path], Vocabulary.from_words(["a"]), **options))


# --- positions ------------------------------------------------------------------------------------


SMALL = UnicodeCharsVocabulary.from_words([*MARKS, "</S>", "a"], 12)  # repeats a word, as a file may
words = st.sampled_from(["a", "b", "dd", "éé", "<S>", "</S>", "<UNK>"])
lines = st.lists(words, max_size=30).map(" ".join)
corpora = st.lists(st.lists(lines, max_size=8), min_size=1, max_size=4).filter(
    lambda shards: any(line for shard in shards for line in shard)
)


def reread(position):
    plain = dataclasses.asdict(Position(position.place, list(position.rows)))
    return JsonObject("position", json.loads(json.dumps(plain))).read_as(Position)


def arrays(batch):
    return [a for part in batch.parts for a in (*part.type_characters, part.token_types, part.targets)]


def assert_same(batches, others):
    for one, other in zip(batches, others, strict=True):
        for array, expected in zip(arrays(one), arrays(other), strict=True):
            np.testing.assert_array_equal(array, expected)
        assert list(one.position.rows) == list(other.position.rows)
        assert one.position.place.epoch == other.position.place.epoch
        assert one.position.place.sentence == other.position.place.sentence


@given(
    corpora,
    st.fixed_dictionaries(
        {
            **{"batch_size": st.integers(1, 3), "unroll_steps": st.integers(1, 6), "shuffle": st.booleans()},
            **{"n_replicas": st.integers(1, 2), "seed": st.integers(0, 3), "bidirectional": st.booleans()},
            **{"shuffle_buffer": st.integers(1, 9), "passage_tokens": st.integers(0, 30)},
        }
    ),
    st.tuples(st.integers(0, 2), st.integers(1, 3)).filter(lambda part: part[0] < part[1]),
    st.sampled_from([WORDS, CHARACTERS, SMALL]),
    st.integers(1, 40),
    st.integers(4, 60),
)
def test_position_resumes_exactly(tmp_path_factory, shards, options, part, vocab, n_before, n_tokens):
    folder = tmp_path_factory.mktemp("corpus")
    files = [write(folder / str(k), "\n".join(shard)) for k, shard in enumerate(shards)]
    own = (
        shards[part[0] :: part[1]]
        if len(shards) >= part[1]
        else [[line for line in shard if line][part[0] :: part[1]] for shard in shards]
    )
    per_epoch = sum(len(line.split()) + 1 for shard in own for line in shard if line)
    if not per_epoch:
        part, per_epoch = (0, 1), sum(len(line.split()) + 1 for shard in shards for line in shard if line)
    n_rows = options["batch_size"] * options["n_replicas"]
    begun = 61 * n_rows  # targets that rows may have before them at most; go past two ends of an epoch
    n_after = -(-(2 * per_epoch + begun) // (n_rows * options["unroll_steps"])) + 1

    def batches(start=None):
        return training(files, vocab, max_filter_width=3, part=part, start=start, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_MAX_BUFFER_TOKENS", n_tokens)
        patch.setattr(stream, "_FILE_ORDER_TOKENS", n_tokens)
        whole = list(itertools.islice(batches(), n_before + n_after))
        assert whole[-1].position.place.epoch >= whole[n_before - 1].position.place.epoch + 2
        position = reread(whole[n_before - 1].position)
        assert_same(itertools.islice(batches(position), n_after), whole[n_before:])


def test_positions_count_sentences(tmp_path):
    path = write(tmp_path / "text", "a\n\n" * 5)
    batches = training([path], WORDS, batch_size=1, unroll_steps=2, bidirectional=False, shuffle=False)
    positions = [batch.position for batch in itertools.islice(batches, 7)]
    assert [position.place.epoch for position in positions] == [0, 0, 0, 0, 1, 1, 1]
    assert [position.place.sentence for position in positions] == [1, 2, 3, 4, 0, 1, 2]


# --- the classes of bilm-tf -----------------------------------------------------------------------


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


def test_reference_dataset_in_test_mode(tmp_path, monkeypatch):
    write(tmp_path / "1", "a b\n")
    write(tmp_path / "2", "c\n\n")
    monkeypatch.chdir(tmp_path)
    dataset = pickle.loads(pickle.dumps(LMDataset("*", WORDS, test=True)))
    monkeypatch.chdir("/")
    sentences = [ids.tolist() for ids, _ in dataset.get_sentence()]
    assert sentences == [[0, 5, 1], [0, 1], [0, 3, 4, 1]], "the last shard comes first"
    assert list(dataset.iter_batches(1, 1)) == []
    dataset = LMDataset(tmp_path, WORDS, reverse=True, test=True)
    assert [ids.tolist() for ids, _ in dataset.get_sentence()] == [[1, 5, 0], [1, 0], [1, 4, 3, 0]]
    (batch,) = LMDataset(tmp_path, WORDS, reverse=True, test=True).iter_batches(2, 2)
    assert batch["next_token_id"].tolist() == [[5, 0], [0, 4]]
    with pytest.raises(DataError, match="no sentences in"):
        next(LMDataset(write(tmp_path / "empty", ""), WORDS).get_sentence())
    batches = BidirectionalLMDataset(tmp_path, WORDS, test=True).iter_batches(2, 2)
    (batch,) = batches
    assert batch["token_ids"].tolist() == [[0, 5], [0, 0]]
    assert batch["next_token_id_reverse"].tolist() == [[5, 0], [0, 4]]


def test_reference_dataset_shuffles_both_directions_alike(tmp_path):
    for k in range(3):
        write(tmp_path / str(k), "".join(f"{word}\n" for word in "abcabc"[k:]))

    def words(shuffle=True):
        random.seed(3)
        batches = BidirectionalLMDataset(tmp_path, WORDS, shuffle_on_load=shuffle).iter_batches(1, 2)
        batches = list(itertools.islice(batches, 30))
        forward = [batch["token_ids"][0, 1] for batch in batches]
        assert forward == [batch["token_ids_reverse"][0, 1] for batch in batches]
        return forward

    assert Counter(words()[:15]) == Counter(words()[15:]) == {3: 4, 4: 5, 5: 6}
    assert words() == words() != words(False)
    assert words(False)[:15] != words(False)[15:]  # shards are shuffled anyway
