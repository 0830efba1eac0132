"""Which checkpoints a directory holds, and which of them is the newest.

TensorFlow's state file ``checkpoint`` names the newest; the others are found by their names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path

from bilm.atomic import replacing
from bilm.errors import CheckpointError

_NEWEST = re.compile(r'^model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"\s*$', re.MULTILINE)
_INDEX_FILE = re.compile(r"model\.ckpt-(?P<step>[0-9]{1,18})\.index")


class CheckpointIndex:
    """The checkpoints ``model.ckpt-STEP`` in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state_file(self) -> Path:
        """The file that names the newest checkpoint."""
        return self.path / "checkpoint"

    def prefix(self, step: int) -> Path:
        """The prefix of a step's checkpoint."""
        return self.path / f"model.ckpt-{step}"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, ascending."""
        matches = map(_INDEX_FILE.fullmatch, (file.name for file in self.path.glob("model.ckpt-*.index")))
        return sorted(int(match["step"]) for match in matches if match)

    def newest(self) -> Path:
        """The prefix that the state file names, looked for in this directory first.

        Raises:
            CheckpointError: there is no state file, or it is damaged.
        """
        state = self.state_file
        try:
            match = _NEWEST.search(state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{self.path}: no checkpoint yet (no file named checkpoint)") from None
        except OSError as error:
            raise CheckpointError(f"{state}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            match = None
        if match is None:
            raise CheckpointError(
                f'{state}: damaged; it must have a line model_checkpoint_path: "model.ckpt-N" that names '
                "the newest checkpoint"
            )
        name = Path(match["path"])
        # Copied and moved directories keep working: what an absolute path names is looked for here.
        places = [self.path / name.name, self.path / name]
        if not name.is_absolute():
            places.reverse()
        found = [place for place in places if os.path.isfile(f"{place}.index")]
        return (found or places)[0]

    def newest_first(self) -> list[Path]:
        """The newest checkpoint and then those before it.

        Raises:
            CheckpointError: as `newest`.
        """
        newest = self.newest()
        match = _INDEX_FILE.fullmatch(newest.name + ".index")
        last = int(match["step"]) if match else 0
        return [newest, *(self.prefix(step) for step in reversed(self.steps()) if step < last)]

    def add(self, prefix: Path) -> None:
        """Make a checkpoint that was written the newest.

        Raises:
            OSError: from the file system.
        """
        step = int(prefix.name.rpartition("-")[2])
        names = [self.prefix(other).name for other in self.steps() if other < step] + [prefix.name]
        lines = [f'model_checkpoint_path: "{prefix.name}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        with replacing(self.state_file) as file:
            file.write_text("\n".join(lines) + "\n")

    def prune(self, keep: int, after: int, spare: Container[int | None]) -> None:
        """Delete all but the newest of the checkpoints later than a step.

        Args:
            keep: how many stay.
            after: checkpoints up to this step are left alone.
            spare: steps that stay beyond them.
        """
        own = [step for step in self.steps() if step > after]
        for step in own[:-keep]:
            if step not in spare:
                self.remove(step)

    def remove(self, step: int) -> None:
        """Delete one checkpoint, its index first: without it the rest is none."""
        prefix = self.prefix(step)
        for file in sorted(self.path.glob(f"{prefix.name}.*"), key=lambda file: file.suffix != ".index"):
            file.unlink(missing_ok=True)
