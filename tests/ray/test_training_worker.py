"""What Ray's workers get of a call, what they tell, and which of their errors may pass; without Ray."""

from __future__ import annotations

import pytest
import tensorflow as tf

from bilm.errors import CheckpointError, DataError, LostWorkerError
from bilm.io.atomic import HeldError
from bilm.ray.training import Attempt, Relay, RemoteCall, may_pass, newest, require_visible

FIRST, SECOND = Attempt(0, 2.0, False), Attempt(1, 30.0, True)


def caused(error, cause):
    error.__cause__ = cause
    return error


def test_the_first_attempt_is_the_call():
    arguments = {"save_dir": "/run", "overwrite": True, "checkpoint": 3}
    assert RemoteCall("train", arguments).arguments_after(FIRST) == arguments


def test_what_an_attempt_has_saved_is_resumed():
    call = RemoteCall("train", {"save_dir": "/run", "overwrite": True, "max_time": 100.0})
    assert call.arguments_after(SECOND) == {"save_dir": "/run", "max_time": 70.0, "resume": True}
    assert call.arguments_after(Attempt(1, 30.0, False)) == {**call.arguments, "max_time": 70.0}


def test_a_restart_goes_on_from_its_own_checkpoints():
    in_place = RemoteCall("restart", {"save_dir": "/run", "checkpoint": 3})
    assert in_place.arguments_after(SECOND) == {"save_dir": "/run", "resume": True}
    away = RemoteCall("restart", {"save_dir": "/run", "save_to": "/new", "checkpoint": 3})
    assert away.arguments_after(SECOND) == {**away.arguments, "resume": True}


def test_the_relay_knows_whether_something_was_saved(tmp_path):
    relay = Relay()
    before = newest(tmp_path)
    assert before is None and newest(None) is None and newest(tmp_path / "none") is None
    assert not relay.begin(before).resumes and not relay.begin(newest(tmp_path)).resumes
    (tmp_path / "checkpoint").write_text("model.ckpt-1")
    third = relay.begin(newest(tmp_path))
    assert third.resumes and third.number == 2

    other = Relay()  # of a call that finds a run, and replaces it
    assert not other.begin(newest(tmp_path)).resumes and not other.begin(None).resumes
    assert not other.begin(newest(tmp_path)).resumes
    (tmp_path / "checkpoint").write_text("model.ckpt-2")
    assert other.begin(newest(tmp_path)).resumes


def test_the_relay_keeps_the_order():
    relay = Relay()
    relay.tell("say", "a")
    relay.tell("end")
    assert relay.take() == [("say", ("a",)), ("end", ())] and relay.take() == []
    assert not relay.is_stopping()
    relay.stop()
    assert relay.is_stopping()


@pytest.mark.parametrize(
    ("error", "attempt", "n_workers", "expected"),
    [
        (LostWorkerError("lost"), FIRST, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), FIRST, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), FIRST, 1, False),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), FIRST, 2, False),
        (DataError("no text"), SECOND, 2, False),
        (ZeroDivisionError(), FIRST, 2, False),
        (caused(CheckpointError("in use"), HeldError("host a")), FIRST, 2, False),
        (caused(CheckpointError("in use"), HeldError("host a")), SECOND, 2, True),
        (caused(CheckpointError("in use"), HeldError("host a")), None, 2, False),
    ],
)
def test_which_errors_may_pass(error, attempt, n_workers, expected):
    assert may_pass(error, attempt, n_workers) is expected


def test_what_a_worker_does_not_find_is_named_with_its_host(tmp_path):
    (tmp_path / "a").touch()
    require_visible((str(tmp_path / "a"), str(tmp_path / "*")), 1)
    with pytest.raises(
        DataError, match=r"/b: worker 1 on host .+ does not find it; every worker must have it"
    ):
        require_visible((str(tmp_path / "b"),), 1)
