"""The tests have names in plain letters, which pytest-xdist compares between its processes."""

import re


def test_ids_are_words(request):
    ids = [item.callspec.id for item in request.session.items if hasattr(item, "callspec")]
    assert [name for name in ids if not re.fullmatch(r"[\w.+/, -]*", name, re.ASCII)] == []
