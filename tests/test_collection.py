"""The tests are the same ones each time they are collected; else they cannot be shared out to processes."""

from __future__ import annotations

import re

import pytest

from tests.helpers import python


@pytest.mark.slow
def test_ids_are_the_same_in_another_process_at_another_time(request: pytest.FixtureRequest):
    own = {item.nodeid for item in request.session.items}
    files = sorted({name.partition("::")[0] for name in own})
    done = python("-m", "pytest", "--collect-only", "-q", "-o", "addopts=", *files)
    assert done.returncode == 0, done.stdout[-2000:]
    assert own <= {*done.stdout.splitlines()}  # which has those that `-m` and `-k` leave out, too


def test_ids_are_words(request: pytest.FixtureRequest):
    ids = [item.callspec.id for item in request.session.items if hasattr(item, "callspec")]
    assert [name for name in ids if not re.fullmatch(r"[\w.+/, -]*", name, re.ASCII)] == []
