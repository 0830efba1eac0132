"""Models as they are distributed, made of the golden files."""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.helpers import CHAR, FILES, VOCAB

(OPTIONS, WEIGHTS), VOCABULARY = FILES, VOCAB


def model_files(weights: str = "model.hdf5", options: str = "options.json") -> dict[str, bytes]:
    """A model's files by their names, as vectors.nlpl.eu has them."""
    return {
        weights: WEIGHTS.read_bytes(),
        options: OPTIONS.read_bytes(),
        "vocab.txt": VOCABULARY.read_bytes(),
    }


def write_folder(path: Path, files: Mapping[str, bytes | str]) -> Path:
    """A folder of files."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def write_zip(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A ZIP archive of files."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def bilm_tf_run(path: Path) -> Path:
    """A run directory of bilm-tf."""
    return shutil.copytree(CHAR / "final", path)
