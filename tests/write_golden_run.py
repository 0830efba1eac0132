"""How `tests/golden/run-VERSION` was written, by the code of that version; none is ever written anew.

When what is on disk changes, a version adds its own: ``python -m tests.write_golden_run``.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import bilm
from bilm.training.meter import StepReport
from tests.helpers import GOLDEN, HELDOUT, TRAIN, VOCAB, smallest_options

SETTINGS: dict[str, Any] = {
    **{"options": smallest_options(batch_size=4), "recipe": "several-passes", "seed": 7, "max_steps": 6},
    **{"eval_every": 2, "log_every": 2, "save_every": 2, "keep": 1},
}
STOPPED_AT = 3


class Stopping(bilm.Reporter):
    """Asks for a stop between two lines of the records, with a sum that waits for the next one."""

    is_time = False

    def step(self, report: StepReport) -> None:
        self.is_time = report.step == STOPPED_AT


def main() -> None:
    """Train a run to its end, and the same run until it is asked to stop."""
    target = GOLDEN / f"run-{bilm.__version__}"
    target.mkdir()  # fails if it exists
    place = Path(tempfile.gettempdir(), "bilm")  # `run.toml` has absolute paths
    place.mkdir()
    os.chdir(place)
    for file in (TRAIN, HELDOUT, VOCAB):
        shutil.copy(file, place)
    names = {"heldout_prefix": "heldout.txt", **SETTINGS}
    bilm.train("train.txt", "vocab.txt", "finished", **names)
    stopping = Stopping()
    bilm.train(
        *("train.txt", "vocab.txt", "interrupted"),
        **names,
        reporter=stopping,
        should_stop=lambda: stopping.is_time,
    )
    for name in ("finished", "interrupted"):
        for events in Path(name).glob("events.out.tfevents.*"):  # named after the machine
            events.unlink()
        shutil.move(name, target)
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
