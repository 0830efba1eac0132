"""Places for outputs, and what may not be written over."""

import os
import socket
from pathlib import Path

import pytest

from bilm.errors import DataError
from bilm.io.outputs import check_output
from bilm.models.saved_model import check_saved_model
from tests.helpers import snapshot


def refused(check, path, *arguments):
    with pytest.raises(DataError) as caught:
        check(path, *arguments)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text.removeprefix(f"{path}: ")


# --- kinds ----------------------------------------------------------------------------------------------


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path, kind in [
            (tmp_path, "a directory"),
            (tmp_path / "link", "a directory"),
            (tmp_path / "pipe", "a device, a pipe or a socket"),
            (tmp_path / "socket", "a device, a pipe or a socket"),
            (Path("/dev/null"), "a device, a pipe or a socket"),
        ]:
            assert refused(check_output, path, True) == f"is {kind}; give the name of a file to write"
    message = refused(check_saved_model, Path("/dev/null"), True)
    assert message == "is a device, a pipe or a socket; give the name of a directory to write"


@pytest.mark.parametrize("check", [check_output, check_saved_model])
def test_a_link_that_leads_nowhere(check, tmp_path):
    (tmp_path / "link").symlink_to("none")
    (tmp_path / "loop").symlink_to("loop")
    for overwrite in (False, True):
        assert refused(check, tmp_path / "link", overwrite).startswith("is a symlink to none, which does not")
    assert "symbolic links" in refused(check, tmp_path / "loop", True)


@pytest.mark.parametrize("check", [check_output, check_saved_model])
def test_a_directory_that_is_not_there_or_cannot_be_written(check, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert refused(check, tmp_path / "none" / "new", False) == "cannot be written: No such file or directory"
    assert refused(check, tmp_path / "file" / "new", False) == "cannot be written: Not a directory"
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    message = refused(check, tmp_path / "new", False)
    assert message == f"cannot be written: no permission to write in {tmp_path}"


# --- inputs ---------------------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text("mine")
    return tmp_path / "text"


def test_an_input_is_not_written_over(text):
    others = (None, text.with_name("none"))
    message = refused(check_output, text, True, [*others, text])
    assert message == "it is an input and would be lost; give another name"


@pytest.mark.parametrize("is_input", [False, True])
def test_links_hide_no_input(text, tmp_path, is_input):
    (tmp_path / "hard").hardlink_to(text)
    (tmp_path / "soft").symlink_to("text")
    (tmp_path / "directory").symlink_to(tmp_path)
    for link in (tmp_path / "hard", tmp_path / "soft", tmp_path / "directory" / "text"):
        output, given = (text, link) if is_input else (link, text)
        assert refused(check_output, output, True, [given]).startswith(
            f"{given} is an input and would be lost"
        )


def test_what_standard_input_comes_from(text):
    with text.open() as file:
        message = refused(check_output, text, True, [file.fileno()])
    assert message == "standard input is an input and would be lost; give another name"


@pytest.mark.parametrize("name", ["checkpoint", "model.ckpt-6.index", "diverged-3.txt"])
def test_files_of_a_run(tmp_path, name):
    message = refused(check_output, tmp_path / name, True, [tmp_path])
    assert message == "is the name of a file of the run; give another name"
    (tmp_path / name).touch()
    (tmp_path / "hard").hardlink_to(tmp_path / name)
    message = refused(check_output, tmp_path / "hard", True, [tmp_path])
    assert message == f"{tmp_path / name} is an input and would be lost; give another name"
    check_output(tmp_path / "weights.hdf5", True, [tmp_path])


# --- SavedModels ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """What looks like a SavedModel of ours."""
    directory = tmp_path / "saved"
    (directory / "variables").mkdir(parents=True)
    (directory / "assets").mkdir()
    for name in ("fingerprint.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        (directory / name).write_text("x")
    (directory / "saved_model.pb").write_bytes(b"\x01word_emb\x02lstm_outputs1\x03sequence_len")
    return directory


def test_what_exists_is_replaced_only_when_told(saved, tmp_path):
    (tmp_path / "old").touch()
    for check, path in ((check_output, tmp_path / "old"), (check_saved_model, saved)):
        check(tmp_path / "new", False)
        assert refused(check, path, False) == "exists; overwrite=True replaces it"
        check(path, True)


NOT_OURS = "exists and is not a SavedModel that bilm wrote, with nothing else in it; give another name"


@pytest.mark.parametrize("name", ["notes.txt", "assets/words.txt", "variables/mine", "run/checkpoint"])
def test_a_saved_model_with_something_else_in_it(saved, name):
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).touch()
    assert refused(check_saved_model, saved, True) == NOT_OURS


def test_directories_that_are_none_of_ours(saved, tmp_path):
    (tmp_path / "empty").mkdir()
    check_saved_model(tmp_path / "empty", False)
    (saved / "assets").rmdir()
    (saved / "assets").symlink_to(tmp_path / "empty")
    assert refused(check_saved_model, saved, True) == NOT_OURS
    (saved / "assets").unlink()
    (saved / "saved_model.pb").write_bytes(b"of another model")
    assert refused(check_saved_model, saved, True) == NOT_OURS


def test_inputs_in_a_saved_model(saved, tmp_path):
    before = snapshot(saved)
    variables = saved / "variables"
    (tmp_path / "link").symlink_to(variables)
    (tmp_path / "hard").hardlink_to(variables / "variables.index")
    for given in (saved, variables, variables / "variables.index", tmp_path / "link", tmp_path / "hard"):
        assert "is an input and would be lost" in refused(check_saved_model, saved, True, [given])
    assert snapshot(saved) == before
