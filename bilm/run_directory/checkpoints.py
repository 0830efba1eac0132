"""Which checkpoints a directory holds, and which of them is the newest.

TensorFlow's state file ``checkpoint`` names the newest; the others are found by their names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from bilm.errors import CheckpointError
from bilm.io.atomic import replacing

_NEWEST = re.compile(r'^model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"\s*$', re.MULTILINE)
_NAMED = re.compile(
    r'^(?:all_)?model_checkpoint_paths?:\s*"(?:[^"]*/)?model\.ckpt-([0-9]{1,18})"\s*$', re.MULTILINE
)
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
            CheckpointError: there is no state file, or it is damaged, or it names none that is there.
        """
        state = self.state_file
        match = _NEWEST.search(self.state())
        if match is None and not state.exists():
            raise CheckpointError(f"{state}: missing" if self.steps() else f"{self.path}: no checkpoint yet")
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
        if not found:
            raise CheckpointError(f"{places[0]}.index: no such checkpoint")
        return found[0]

    def state(self) -> str:
        """The text of the state file, which is another whenever a checkpoint was saved; "" if there is none.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            return self.state_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise CheckpointError(f"{self.state_file}: cannot be read: {error.strerror or error}") from error

    def named_steps(self) -> set[int]:
        """The steps whose checkpoints the state file names."""
        return {int(step) for step in _NAMED.findall(self.state())}

    def exists(self) -> bool:
        """Whether there is a checkpoint or the state file of one."""
        return self.state_file.exists() or bool(self.steps())

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
