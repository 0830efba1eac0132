from bilm.embedding.packing import chunks


def test_chunks_end_where_there_is_enough():
    sentences = [("first", ["a"] * 3), ("second", []), ("third", ["a"] * 5), ("last", ["a"])]
    found = chunks(sentences, lambda n_sentences, n_tokens: n_tokens >= 7, lambda sentence: sentence[1])
    assert list(found) == [sentences[:2], sentences[2:3], sentences[3:]]
    assert list(chunks(sentences, lambda n_sentences, _: n_sentences == 4, lambda sentence: sentence[1])) == [
        sentences
    ]
    assert list(chunks([], lambda *_: True, len)) == []
