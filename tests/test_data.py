import gc
import itertools
import random
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm import data
from bilm.data import (
    Batch,
    Batcher,
    BidirectionalLMDataset,
    EncodedSentence,
    InvalidNumberOfCharacters,
    LMDataset,
    TokenBatcher,
    UnicodeCharsVocabulary,
    Vocabulary,
    Window,
    compact,
    encode_sentences,
    evaluation_batches,
    length_buckets,
    pack_windows,
    prefetch,
    sentence_stream,
    training_batches,
)
from bilm.errors import BilmError, DataError, OptionsError, VocabularyError
from bilm.vocab import load_vocabulary

GOLDEN = Path(__file__).parent / "golden"
VARIANTS = ["char", "char-tanh-noskip-3layer", "char-forward", "word-shared"]
MARKS = ["<S>", "</S>", "<UNK>"]
WORDS = Vocabulary.from_words([*MARKS, "a", "b", "c"])
CHARACTERS = UnicodeCharsVocabulary.from_words(WORDS.words, 12)


def golden(variant):
    folder = GOLDEN / variant
    vocab = load_vocabulary(folder / "vocab.txt", None if variant == "word-shared" else 50)
    return folder / "train.txt", vocab, np.load(folder / "batches.npz")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def expand(batch: Batch) -> np.ndarray:
    """Full rows of characters of every token, (directions, rows, steps, longest width)."""
    widest = batch.type_characters[-1].shape[1]
    rows = [
        np.pad(part, ((0, 0), (0, widest - part.shape[1])), constant_values=260)
        for part in batch.type_characters
    ]
    return np.concatenate(rows)[batch.token_types].transpose(0, 2, 1, 3)


def assert_same_batches(batches, dictionaries, has_characters):
    for batch, expected in zip(batches, dictionaries, strict=True):
        for direction, suffix in enumerate(["", "_reverse"][: len(batch.targets)]):
            np.testing.assert_array_equal(batch.targets[direction].T, expected[f"next_token_id{suffix}"])
            if has_characters:
                characters = expand(batch)[direction]
                np.testing.assert_array_equal(characters, expected[f"tokens_characters{suffix}"])
            else:
                np.testing.assert_array_equal(batch.token_types[direction].T, expected[f"token_ids{suffix}"])
        assert batch.weights.all()


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_batches_of_training(variant):
    path, vocab, expected = golden(variant)
    batches = training_batches(
        [path],
        vocab,
        batch_size=4,
        unroll_steps=20,
        bidirectional=variant != "char-forward",
        max_filter_width=4,
        shuffle=False,
    )
    dictionaries = [
        {name.partition("/")[2]: expected[name] for name in expected.files if name.startswith(f"batch{k}/")}
        for k in range(3)
    ]
    first = [one for (one,) in itertools.islice(batches, 3)]
    assert_same_batches(first, dictionaries, variant != "word-shared")
    for batch in first:
        assert all(part.dtype == np.int32 for part in batch.type_characters)
        assert {batch.token_types.dtype, batch.targets.dtype} == {np.dtype(np.int32)}
        assert batch.weights.dtype == np.float32
        assert batch.token_types.shape == batch.targets.shape == (len(batch.targets), 20, 4)
        assert batch.weights.shape == (20, 4)


# Words of several lengths, known and not.
sentences_of_words = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "éé", "long-unknown-word"]), max_size=12), max_size=12
)


def encoded(tmp_path_factory, sentences, vocab):
    path = tmp_path_factory.mktemp("corpus") / "text"
    write(path, "".join(" ".join(words) + "\n" for words in sentences))
    return list(encode_sentences([path], vocab, keep_blank=True))


def strings(ids, oov, vocab):
    return [vocab.words[k] if k < vocab.size else oov[k - vocab.size] for k in ids.tolist()]


def known(words):
    return [word if word in WORDS.words else "<UNK>" for word in words]


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 30))
def test_encoding(tmp_path_factory, sentences, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "_ENCODE_TOKENS", chunk)
        over_characters = encoded(tmp_path_factory, sentences, CHARACTERS)
        over_words = encoded(tmp_path_factory, sentences, WORDS)
    for words, one, other in zip(sentences, over_characters, over_words, strict=True):
        assert one.ids.dtype == other.ids.dtype == np.int32
        assert strings(one.ids, one.oov, CHARACTERS) == ["<S>", *words, "</S>"]
        assert one.oov == tuple(word for word in words if word not in WORDS.words)
        assert strings(other.ids, (), WORDS) == ["<S>", *known(words), "</S>"]
        assert other.oov == ()


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 5), st.integers(1, 7), st.booleans(), st.booleans())
def test_masked_windows_hold_every_target_once(tmp_path_factory, sentences, n_rows, n_steps, both, of_words):
    vocab = WORDS if of_words else CHARACTERS
    windows = list(
        pack_windows(
            encoded(tmp_path_factory, sentences, vocab),
            vocab,
            n_rows=n_rows,
            n_steps=n_steps,
            bidirectional=both,
            tail="mask",
        )
    )
    n_targets = sum(len(words) + 1 for words in sentences)
    assert sum(window.weights.sum() for window in windows) == n_targets
    for direction in range(1 + both):
        seen = Counter()
        for row in range(n_rows):
            inputs, targets = [], []
            for window in windows:
                assert window.inputs.shape == window.targets.shape == (1 + both, n_rows, n_steps)
                is_token = window.weights[row] == 1
                assert not window.inputs[direction, row][~is_token].any()
                assert not window.targets[direction, row][~is_token].any()
                inputs += strings(window.inputs[direction, row][is_token], window.oov, vocab)
                targets += strings(window.targets[direction, row][is_token], (), WORDS)
            first, last = ("</S>", "<S>") if direction else ("<S>", "</S>")
            assert known(inputs[1:]) == [t if t != last else first for t in targets[:-1]]
            for is_mark, words in itertools.groupby(inputs, key=lambda word: word == first):
                words = list(words)
                if is_mark:
                    seen[()] += len(words) - 1  # empty sentences: mark after mark
                else:
                    seen[tuple(words[::-1] if direction else words)] += 1
            seen[()] += bool(inputs) and inputs[-1] == first
        expected = Counter(tuple(known(words) if of_words else words) for words in sentences)
        assert +seen == expected
    assert all(window.weights.any() for window in windows)


def test_sentences_come_in_order_and_rows_in_turn():
    sentences = [EncodedSentence(np.array([0, *[3 + k % 3] * k, 1], np.int32)) for k in range(6)]
    windows = pack_windows(sentences, WORDS, n_rows=2, n_steps=4, bidirectional=True, tail="mask")
    first = next(windows)
    assert first.inputs[0].tolist() == [[0, 0, 4, 0], [0, 3, 3, 3]]
    assert first.targets[0].tolist() == [[1, 4, 1, 5], [3, 3, 3, 1]]
    assert first.inputs[1].tolist() == [[1, 1, 4, 1], [1, 3, 3, 3]]
    assert first.targets[1].tolist() == [[0, 4, 0, 5], [3, 3, 3, 0]]


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))
def test_packing_options_agree(tmp_path_factory, sentences, n_rows, pull_steps, n_turns, skip):
    sentences = encoded(tmp_path_factory, sentences, CHARACTERS)

    def pack(n_steps, **options):
        return list(
            pack_windows(sentences, CHARACTERS, n_rows=n_rows, n_steps=n_steps, bidirectional=True, **options)
        )

    def words(windows):
        return [
            (
                strings(window.inputs[..., step].ravel(), window.oov, CHARACTERS),
                window.targets[..., step].tolist(),
            )
            for window in windows
            for step in range(window.weights.shape[1])
            if window.weights[:, step].any()
        ]

    for tail in ("mask", "drop"):
        short = pack(pull_steps, tail=tail)
        joined = pack(pull_steps * n_turns, tail=tail, pull_steps=pull_steps)
        assert words(joined) == words(short)
        assert words(pack(pull_steps, tail=tail, skip=skip)) == words(short[skip:])
        assert sum(w.weights.sum() for w in joined) == sum(w.weights.sum() for w in short)


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_batches_are_those_of_the_reference(tmp_path_factory, sentences, n_rows, n_steps, of_words):
    vocab = WORDS if of_words else CHARACTERS
    path = tmp_path_factory.mktemp("corpus") / "text"
    write(path, "".join(" ".join(words) + "\n" for words in sentences))
    reference = list(BidirectionalLMDataset(path, vocab, test=True).iter_batches(n_rows, n_steps))
    windows = pack_windows(
        encode_sentences([path], vocab, keep_blank=True),
        vocab,
        n_rows=n_rows,
        n_steps=n_steps,
        bidirectional=True,
        tail="drop",
    )
    assert_same_batches([compact(window, vocab, 3) for window in windows], reference, not of_words)


@pytest.mark.parametrize("n_steps", [1, 7, 20])
@pytest.mark.parametrize("variant", ["char", "word-shared"])
def test_compatible_evaluation_reads_what_the_reference_reads(tmp_path, variant, n_steps):
    _, vocab, _ = golden(variant)
    lines = (GOLDEN / variant / "heldout.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    files = [write(tmp_path / "1", "".join(lines[:20]) + "\n"), write(tmp_path / "2", "".join(lines[20:]))]
    reference = list(BidirectionalLMDataset(tmp_path, vocab, test=True).iter_batches(4, 1))
    batches = list(
        evaluation_batches(
            files,
            vocab,
            batch_size=4,
            unroll_steps=n_steps,
            bidirectional=True,
            max_filter_width=4,
            compat=True,
        )
    )
    assert len(batches) == -(-len(reference) // n_steps)
    weights = np.concatenate([batch.weights for batch in batches])
    assert weights[: len(reference)].all()
    assert not weights[len(reference) :].any()
    for direction, suffix in enumerate(["", "_reverse"]):
        targets = np.concatenate([batch.targets[direction] for batch in batches])[: len(reference)]
        np.testing.assert_array_equal(targets, [one[f"next_token_id{suffix}"][:, 0] for one in reference])
        name = "token_ids" if variant == "word-shared" else "tokens_characters"
        inputs = np.concatenate(
            [
                batch.token_types[direction]
                if name == "token_ids"
                else expand(batch)[direction].swapaxes(0, 1)
                for batch in batches
            ]
        )
        expected = [one[f"{name}{suffix}"][:, 0] for one in reference]
        np.testing.assert_array_equal(inputs[: len(reference)], expected)


def test_evaluation_of_less_than_a_batch(tmp_path):
    path = write(tmp_path / "text", "a b\n\nc\n")
    options = {"batch_size": 4, "unroll_steps": 3, "bidirectional": True}
    assert list(evaluation_batches([path], WORDS, compat=True, **options)) == []
    (batch,) = evaluation_batches([path], WORDS, **options)
    assert batch.weights.T.tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert batch.token_types[1].T.tolist()[:2] == [[1, 4, 3], [1, 5, 0]]
    empty = write(tmp_path / "empty", "\n")
    assert list(evaluation_batches([empty], WORDS, **options)) == []


def test_length_buckets():
    assert length_buckets(50, 7) == (13, 15, 17, 20, 25, 33, 50)
    assert length_buckets(16, 3) == (9, 11, 13, 16)
    assert length_buckets(5, 1) == (5,)


@settings(deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=20), st.integers(1, 5))
def test_words_are_in_the_first_bucket_that_is_wide_enough(words, filter_width):
    vocab = UnicodeCharsVocabulary.from_words(MARKS, 14)
    sentence = EncodedSentence(np.array([0, *range(3, 3 + len(words)), 1], np.int32), tuple(words))
    (window,) = pack_windows([sentence], vocab, n_rows=1, n_steps=99, bidirectional=False, tail="mask")
    batch = compact(window, vocab, filter_width)
    widths = length_buckets(14, filter_width)
    assert tuple(part.shape[1] for part in batch.type_characters) == widths
    rows = [tuple(row.tolist()) for part in batch.type_characters for row in part]
    assert len(set(rows)) == len(rows)
    for narrower, part in zip((0, *widths), batch.type_characters, strict=False):
        for row in part:
            needed = min(14, int((row != 260).sum()) + filter_width)
            assert narrower < needed <= part.shape[1]


def test_replicas_have_rows_of_one_window(tmp_path):
    path = write(tmp_path / "text", "a b c a\nb dd\nc c\na b dd ee\n")
    options = {"unroll_steps": 3, "bidirectional": True, "max_filter_width": 2, "seed": 5}
    whole = training_batches([path], CHARACTERS, batch_size=6, **options)
    parts = training_batches([path], CHARACTERS, batch_size=2, n_replicas=3, **options)
    for (one,), three in itertools.islice(zip(whole, parts, strict=False), 9):
        np.testing.assert_array_equal(one.targets, np.concatenate([part.targets for part in three], axis=2))
        np.testing.assert_array_equal(expand(one), np.concatenate([expand(part) for part in three], axis=1))


def test_training_goes_on_where_it_was(tmp_path):
    path = write(tmp_path / "text", "".join(f"{word} a b\n" for word in "abcdefghijklm"))
    options = {"batch_size": 2, "unroll_steps": 3, "bidirectional": True, "shuffle_buffer": 4}
    batches = [batch for (batch,) in itertools.islice(training_batches([path], WORDS, **options), 20)]
    rest = training_batches([path], WORDS, skip=15, **options)
    for batch, (again,) in zip(batches[15:], rest, strict=False):
        np.testing.assert_array_equal(batch.token_types, again.token_types)
        np.testing.assert_array_equal(batch.targets, again.targets)


def stream(files, n_sentences, **options):
    options = {"shuffle": True, "seed": 0, "endless": True} | options
    sentences = itertools.islice(sentence_stream(files, CHARACTERS, **options), n_sentences)
    return [" ".join(strings(one.ids[1:-1], one.oov, CHARACTERS)) for one in sentences]


@pytest.mark.parametrize("shuffle_buffer", [1, 10, 15, 1000])
def test_shuffling_is_a_permutation_that_the_seed_repeats(tmp_path, shuffle_buffer):
    lines = [f"{k} a" for k in range(40)]
    files = [write(tmp_path / f"{k}", "\n".join(lines[k::4]) + "\n") for k in range(4)]
    in_order = [line for k in range(4) for line in lines[k::4]]
    assert stream(files, None, shuffle=False, endless=False) == in_order
    assert stream(files, 80, shuffle=False) == in_order * 2
    twice = stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert sorted(twice[:40]) == sorted(twice[40:]) == sorted(lines)
    assert twice[:40] != twice[40:]
    assert twice == stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert twice != stream(files, 80, shuffle_buffer=shuffle_buffer, seed=1)
    assert twice[:40] == stream(files, None, shuffle_buffer=shuffle_buffer, endless=False)
    shard_of_first_ten = {lines.index(line) % 4 for line in twice[:10]}
    assert (len(shard_of_first_ten) == 1) == (shuffle_buffer in (1, 10)), "larger blocks go over shards"


def test_long_lines_end_a_block_sooner(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_MAX_BUFFER_TOKENS", 10)
    path = write(tmp_path / "text", "".join(f"{k} a\n" for k in range(30)))
    blocks = np.array([int(line.split()[0]) for line in stream([path], 30)]).reshape(10, 3)
    np.testing.assert_array_equal(np.sort(blocks), np.arange(30).reshape(10, 3))


def test_blank_lines_are_not_sentences_in_training(tmp_path):
    path = write(tmp_path / "text", "\na\n\n \nb\n")
    assert stream([path], 4, shuffle=False) == ["a", "b", "a", "b"]
    empty = write(tmp_path / "empty", "\n\n")
    assert stream([empty], None, endless=False) == []
    with pytest.raises(DataError, match="no sentence in .*empty: the corpus is empty"):
        stream([empty], 1)


def test_bad_arguments(tmp_path):
    path = write(tmp_path / "text", "a\n")
    options = {"batch_size": 1, "unroll_steps": 1, "bidirectional": False}
    for name in ("batch_size", "unroll_steps"):
        with pytest.raises(OptionsError, match="is 0; it must be at least 1"):
            next(training_batches([path], WORDS, **(options | {name: 0})))
    with pytest.raises(OptionsError, match="max_filter_width is needed"):
        next(training_batches([path], CHARACTERS, **options))
    with pytest.raises(VocabularyError, match="not all of <S>, </S>, <UNK>"):
        next(evaluation_batches([path], Vocabulary.from_words(["a"]), **options))
    for bad in ({"tail": "keep"}, {"tail": "drop", "pull_steps": 2}):
        with pytest.raises(OptionsError, match="must be 'mask' or 'drop'"):
            next(pack_windows([], WORDS, n_rows=1, n_steps=3, bidirectional=True, **bad))


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
        write(tmp_path / str(k), "".join(f"{word}\n" for word in "abcde"[k:]))
    random.seed(3)
    dataset = BidirectionalLMDataset(tmp_path, WORDS, shuffle_on_load=True)
    batches = list(itertools.islice(dataset.iter_batches(1, 2), 24))
    forward = [batch["token_ids"][0, 1] for batch in batches]
    assert forward == [batch["token_ids_reverse"][0, 1] for batch in batches]
    assert (
        Counter(forward[:12])
        == Counter(forward[12:])
        == Counter(WORDS.encode("abcde bcde cde".replace("", " "))[1:-1].tolist())
    )
    random.seed(3)
    again = BidirectionalLMDataset(tmp_path, WORDS, shuffle_on_load=True).iter_batches(1, 2)
    assert forward == [batch["token_ids"][0, 1] for batch in itertools.islice(again, 24)]


def test_reference_dataset_errors(tmp_path):
    with pytest.raises(DataError, match="no file matches"):
        LMDataset(str(tmp_path / "*"), WORDS)
    write(tmp_path / "empty", "")
    with pytest.raises(DataError, match="no sentence in"):
        next(LMDataset(tmp_path, WORDS).iter_batches(1, 1))
    assert list(LMDataset(tmp_path, WORDS, test=True).iter_batches(1, 1)) == []


def test_names_of_the_reference_module():
    assert issubclass(InvalidNumberOfCharacters, BilmError)
    assert all((Batcher, TokenBatcher, UnicodeCharsVocabulary, Vocabulary, Window))


def n_threads():
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def wait_for_threads():
    deadline = time.monotonic() + 5
    while n_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return n_threads()


def test_prefetch_passes_items_and_exceptions():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))

    def failing():
        yield 1
        raise DataError("line 7")

    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(DataError, match="line 7"):
        next(items)
    assert wait_for_threads() == 0


@pytest.mark.parametrize("leave", ["close", "delete"])
def test_prefetch_stops_with_its_consumer(leave):
    made = []
    closed = threading.Event()

    def numbers():
        try:
            for number in itertools.count():
                made.append(number)
                yield number
        finally:
            closed.set()

    items = prefetch(numbers(), depth=2)
    assert [next(items), next(items)] == [0, 1]
    if leave == "close":
        items.close()
    del items
    gc.collect()
    assert wait_for_threads() == 0
    assert closed.is_set()
    assert len(made) <= 7, "no more than the depth is made ahead"
