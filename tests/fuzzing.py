"""Reading damaged files in a child process with limits, and writing them."""

import gc
import gzip
import io
import json
import mmap
import os
import resource
import signal
import traceback
from pathlib import Path
from random import Random

import h5py
import pytest

from bilm.errors import BilmError
from tests.mutations import mutate_bytes, mutate_json, mutate_text

_N_INPUTS = int(os.environ.get("BILM_FUZZ", "150"))
_N_QUICK = min(_N_INPUTS, 30)
with_inputs = pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(range(_N_QUICK), id="first"),
        pytest.param(range(_N_QUICK, _N_INPUTS), id="more", marks=pytest.mark.slow),
    ],
)
"""The numbers of the inputs that a reader is given; the quick tests take the first thirty."""

SECONDS = 20  # for an input, which takes milliseconds
BYTES = 1 << 31  # of address space beyond what the process has


def read_damaged(name, write, reads, place, inputs=range(1)):
    """Write and read inputs in a child process; what ends it but success or a `BilmError` is a failure."""
    current = mmap.mmap(-1, 8)  # number of the input, shared with the child
    child = os.fork()
    if not child:
        failed = True
        gc.freeze()  # functions of TensorFlow that other tests have left crash a fork that collects them
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
            for number in inputs:
                current[:] = number.to_bytes(8, "little")
                write(Random(f"{name} {number}"), place)
                for read in reads:
                    _read_in_time(read, place)
            failed = False
        except BaseException:
            (place / "failure").write_text(traceback.format_exc())
        finally:
            os._exit(failed)
    status = os.waitpid(child, 0)[1]
    if status:
        failure = place / "failure"
        cause = failure.read_text() if failure.exists() else f"killed by {signal.Signals(status & 0x7F).name}"
        pytest.fail(f"{name}, input {int.from_bytes(current, 'little')}, which is in {place}: {cause}")


def _read_in_time(read, place):
    signal.setitimer(signal.ITIMER_REAL, SECONDS)  # which kills the process
    try:
        read(place)
    except BilmError as error:
        assert str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def damaged_text(name, text):
    """A file of text, damaged as text or as bytes."""

    def write(random, place):
        data = text.encode()
        if random.random() < 0.5:
            data = mutate_text(random, text).encode("utf-8", "surrogateescape")
        else:
            data = mutate_bytes(random, data, [gzip.compress(data)])
        (place / name).write_bytes(data)

    return write


def damaged_json(name, *values):
    """A file of JSON, one value a line; one of them is damaged as JSON, or the whole as text."""
    lines = [json.dumps(value) for value in values]
    as_text = damaged_text(name, "".join(f"{line}\n" for line in lines))

    def write(random, place):
        if random.random() < 0.3:
            as_text(random, place)
            return
        i = random.randrange(len(values))
        damaged = [*lines[:i], mutate_json(random, values[i]), *lines[i + 1 :]]
        (place / name).write_text("".join(f"{line}\n" for line in damaged))

    return write


def damaged_hdf5(name, content):
    """A file of HDF5 whose bytes are damaged."""
    files = []
    for version in ("earliest", "latest"):
        with h5py.File(buffer := io.BytesIO(), "w", libver=version) as file:
            content(file)
        files.append(buffer.getvalue())

    def write(random, place):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(mutate_bytes(random, random.choice(files), files))

    return write
