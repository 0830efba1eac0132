"""Kill a training process at random moments, resume it each time, and compare with one never killed.

    python -m tests.kill_and_resume --kills 20

Every process is a real ``bilm train --resume``; SIGKILL gives it no chance to clean up. With
``--in-saves 0.5`` half of the kills wait, once their moment has come, for the temporary name of the next
checkpoint, and so fall inside a save. At the end all
that decides about the numbers has to be equal to the bit: every array of the last checkpoint and of
the best one, and each line of the record but its times.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.helpers import HELDOUT, checkpoint_arrays, small_options, train_command, write_json

_TIMES = ("time", "seconds", "tokens_per_second", "data_wait")
_METER_TIMES = ("seconds", "wait_seconds")


def command(directory, name, n_steps, precision):
    """A training with validations, early checkpoints, shuffling and dropout."""
    options = write_json(directory / "options.json", small_options(n_epochs=100))
    flags = {
        "--heldout-prefix": HELDOUT,
        "--max-steps": n_steps,
        "--eval-every": n_steps // 5,
        "--save-every": n_steps // 40,
        "--log-every": 7,
        "--shuffle-buffer": 50,
        "--seed": 3,
        "--precision": precision,
    }
    words = train_command(directory / name, options, "--resume", *(x for pair in flags.items() for x in pair))
    return [sys.executable, "-m", "bilm", *map(str, words)]


def numbers(run):
    """Everything of a run that has to be the same."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = {
        "metrics": [{key: value for key, value in record.items() if key not in _TIMES} for record in records]
    }
    newest = Path((run / "checkpoint").read_text().split('"')[1]).name
    best = json.loads(checkpoint_arrays(run / newest, extras=True)["bilm/run_state"])["best"]
    for checkpoint in {newest, f"model.ckpt-{best['step']}" if best else newest}:
        for name, array in checkpoint_arrays(run / checkpoint, extras=True).items():
            if name == "bilm/run_state":
                state = json.loads(array)
                del state["log_bytes"]  # the times have digits more or less
                for key in _METER_TIMES:
                    del state["meter"][key]
                result[f"{checkpoint} {name}"] = state
            else:
                result[f"{checkpoint} {name}"] = (array.shape, array.tobytes())
    return result


def differences(one, other):
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def saves(run):
    """The process that is saving a checkpoint, or was when it was killed; empty if there is none."""
    try:
        return {(run / ".model.ckpt.tmp" / "lock").read_text()} - {""}
    except FileNotFoundError:
        return set()


def wait_for_save(run, before, process):
    """Return within the next save, or when the process has ended."""
    while saves(run) <= before and process.poll() is None:
        time.sleep(0.0002)


@click.command()
@click.option("--kills", default=20, show_default=True)
@click.option("--steps", "n_steps", default=2000, show_default=True)
@click.option("--in-saves", default=0.0, show_default=True, help="Share of the kills that wait for a save.")
@click.option("--precision", default="float32", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
def main(kills, n_steps, in_saves, precision, seed):
    """Exit with status 1 if anything differs."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        started = time.monotonic()
        subprocess.run(command(directory, "whole", n_steps, precision), check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        print(f"whole: {seconds:.1f} s")
        n_killed = n_unsaved = n_torn = 0
        while True:
            process = subprocess.Popen(
                command(directory, "killed", n_steps, precision), stdout=subprocess.PIPE, text=True
            )
            try:
                wait = moments.uniform(0.1, 0.6) * seconds if n_killed < kills else None
                output, _ = process.communicate(timeout=wait)
                break
            except subprocess.TimeoutExpired:
                before = saves(directory / "killed")
                if moments.random() < in_saves:
                    wait_for_save(directory / "killed", before, process)
                process.send_signal(signal.SIGKILL)
                output, _ = process.communicate()
                n_killed += 1
                n_torn += bool(saves(directory / "killed") - before)
                n_unsaved += not (directory / "killed" / "checkpoint").exists()
                resumed = [line for line in output.splitlines() if line.startswith("resuming")]
                print(f"killed {n_killed}: {resumed[0] if resumed else 'before it resumed'}", flush=True)
        if process.returncode:
            sys.exit(f"failed: {output}")
        found = differences(numbers(directory / "whole"), numbers(directory / "killed"))
        print(f"killed {n_killed} times, {n_unsaved} before the first checkpoint, {n_torn} inside a save")
        if found:
            sys.exit(f"different: {found}")
        print("identical to the run that was never killed")


if __name__ == "__main__":
    main()
