import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data import stream as stream_module
from bilm.data.stream import Position
from bilm.errors import CheckpointError
from bilm.io.background import prefetch
from bilm.io.json import JsonObject
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from tests.corpora import CHARACTERS, MARKS, WORDS, training, write

SMALL = UnicodeCharsVocabulary.from_words([*MARKS, "</S>", "a"], 12)  # repeats a word, as a file may
words = st.sampled_from(["a", "b", "dd", "éé", "<S>", "</S>", "<UNK>"])
lines = st.lists(words, max_size=30).map(" ".join)
corpora = st.lists(st.lists(lines, max_size=8), min_size=1, max_size=4).filter(
    lambda shards: any(line for shard in shards for line in shard)
)


def reread(position):
    plain = dataclasses.asdict(Position(position.place, list(position.rows)))
    return JsonObject("position", json.loads(json.dumps(plain))).read_as(Position, is_complete=True)


def arrays(batch):
    return [
        array for part in batch.parts for array in (*part.type_characters, part.token_types, part.targets)
    ]


def assert_same(batches, others):
    for one, other in zip(batches, others, strict=True):
        for array, expected in zip(arrays(one), arrays(other), strict=True):
            np.testing.assert_array_equal(array, expected)
        assert list(one.position.rows) == list(other.position.rows)
        assert one.position.place.epoch == other.position.place.epoch
        assert one.position.place.sentence == other.position.place.sentence


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(
    corpora,
    st.fixed_dictionaries(
        {
            "batch_size": st.integers(1, 3),
            "unroll_steps": st.integers(1, 6),
            "n_replicas": st.integers(1, 2),
            "shuffle": st.booleans(),
            "seed": st.integers(0, 3),
            "shuffle_buffer": st.integers(1, 9),
            "bidirectional": st.booleans(),
        }
    ),
    st.tuples(st.integers(0, 2), st.integers(1, 3)).filter(lambda part: part[0] < part[1]),
    st.sampled_from([WORDS, CHARACTERS, SMALL]),
    st.integers(1, 40),
    st.integers(4, 60),
)
def test_going_on_is_never_having_stopped(tmp_path_factory, shards, options, part, vocab, n_before, n_tokens):
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
    begun = 31 * n_rows  # targets that rows may have before them at most; go past two ends of an epoch
    n_after = -(-(2 * per_epoch + begun) // (n_rows * options["unroll_steps"])) + 1

    def batches(start=None):
        return training(files, vocab, max_filter_width=3, part=part, start=start, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "_MAX_BUFFER_TOKENS", n_tokens)
        patch.setattr(stream_module, "_FILE_ORDER_TOKENS", n_tokens)
        whole = list(itertools.islice(batches(), n_before + n_after))
        assert whole[-1].position.place.epoch >= whole[n_before - 1].position.place.epoch + 2
        position = reread(whole[n_before - 1].position)
        assert_same(itertools.islice(batches(position), n_after), whole[n_before:])


def test_positions_travel_with_prefetched_batches(tmp_path):
    path = write(tmp_path / "text", "".join(f"a {'b ' * k}\n" for k in range(50)))
    options = {"batch_size": 3, "unroll_steps": 4, "bidirectional": True, "shuffle_buffer": 7}
    whole = list(itertools.islice(training([path], WORDS, **options), 60))
    ahead = prefetch(training([path], WORDS, **options))
    position = list(itertools.islice(ahead, 25))[-1].position
    ahead.close()
    assert_same(itertools.islice(training([path], WORDS, start=position, **options), 35), whole[25:])


def test_progress(tmp_path):
    path = write(tmp_path / "text", "a\n\n" * 5)
    batches = training([path], WORDS, batch_size=1, unroll_steps=2, bidirectional=False, shuffle=False)
    positions = [batch.position for batch in itertools.islice(batches, 7)]
    assert [position.place.epoch for position in positions] == [0, 0, 0, 0, 1, 1, 1]
    assert [position.place.sentence for position in positions] == [1, 2, 3, 4, 0, 1, 2]


def good():
    row = {"text": "a b", "offset": 2}
    place = {"epoch": 0, "block": 0, "shard": 0, "line": 0, "taken": 1, "sentence": 1}
    return {"place": place, "rows": [row, None]}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("place",), None, "position.place: expected an object, got null"),
        (("place", "line"), 10**30, "position.place.line: must be below"),
        (("rows", 1), [], r"position.rows\[1\]: expected an object, got \[\]"),
        (("rows", 0, "offset"), 3, r"position.rows\[0\].offset: must be at most the 2 words of the text"),
    ],
)
def test_malformed_positions_are_refused(path, value, message):
    changed = {"position": good()}
    inner, last = changed, "position"
    for key in path:
        inner, last = inner[last], key
    inner[last] = value
    whole = JsonObject("position", changed["position"])
    whole.read_as(Position, is_complete=True)
    assert [problem for problem in whole.problems if re.match(message, problem)]


def test_a_text_that_lost_a_place_is_refused(tmp_path):
    path = write(tmp_path / "text", "a b c\nb\n" * 9)
    options = {"batch_size": 3, "unroll_steps": 4, "bidirectional": True}
    position = next(training([path], WORDS, **options)).position
    write(path, "a\n")
    with pytest.raises(CheckpointError, match="the text has changed"):
        next(training([path], WORDS, start=position, **options))
