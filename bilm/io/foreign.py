"""Recognition of other programs' files, for error messages with a remedy.

Files are recognised by their names, the names in their directory or archive, and their first bytes.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from bilm.errors import BilmError

_ALLENNLP = (
    "an AllenNLP model without the biLM's options; put the file that options_file in its config.json names "
    "beside it, as options.json, or give both as `options_file` and `weight_file`"
)
_PYTORCH = "a PyTorch file; bilm reads AllenNLP's ELMo in it, given as `weight_file` or `model`"
_OTHER = (
    "a model of another kind, such as a SavedModel, a transformer or one of ELMoForManyLangs (those of the "
    "CoNLL17 corpus at vectors.nlpl.eu); bilm reads models with options.json and HDF5 weights"
)
_LFS = "a pointer of Git LFS to the file; `git lfs pull` fetches it"

# Pattern of file names -> description of a directory or archive with such a file; the first match decides.
_BY_NAME = {
    r"weights\.th": _ALLENNLP,
    r"(encoder|token_embedder)\.pkl|tfhub_module\.pb|saved_model\.pb|model\.weights\.h5": _OTHER,
    r"model\.safetensors.*|pytorch_model\.bin.*|tf_model\.h5|flax_model\.msgpack": _OTHER,
    r"data\.pkl|pickle|.*\.(th|pth?)": _PYTORCH,
}
TAR_ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # an archive, an empty archive
_ARCHIVE = "a {} archive; if it contains a model, give it as `model`"

# Pattern of a file's first bytes -> description; the first match decides.
_BY_START = {
    rb".{257}ustar(\0|  \0)": _ARCHIVE.format("tar"),
    rb"\x1f\x8b": "compressed with gzip; decompress it with gunzip",
    rb"\x80[\x02-\x05]": "a Python pickle, which bilm does not read; give weights and their options.json",
    rb".{7}\0\{\"": _OTHER,  # safetensors
    rb"version https://git-lfs": _LFS,
    rb"\s*<(!doctype )?html": "a web page; download the file that it links to",
}
# The same for a file that is given as text, by its bytes after decompression.
_NOT_TEXT = {
    rb"PK\x03\x04.{26}(mimetypeapplication/|\[Content_Types\]|_rels/|docProps/|word/)|\{\\rtf": (
        "an Office document or a book; `pandoc -t plain` converts it to text; save a spreadsheet as CSV"
    ),
    rb"PK[\x03\x05\x07]|.{257}ustar(\0|  \0)|7z\xbc\xaf|Rar!\x1a": "an archive; unpack it",
    rb"%PDF-": "a PDF; `pdftotext FILE` converts it to text",
    rb"version https://git-lfs": _LFS,
    rb"WARC/\d": "a web archive; extract its pages with a program such as warcio",
    rb"\s*(<\?xml[^>]*>\s*)?<mediawiki": "a dump of a wiki; `wikiextractor FILE` converts it to text",
}
_MARKUP = re.compile(rb"\s*(<(\?xml|!doctype|html|TEI|doc id=))", re.IGNORECASE)
HEAD_BYTES = 512


@contextmanager
def explained(path: str | Path, failure: type[BilmError]) -> Iterator[None]:
    """Replace an error of reading a file by a description of the file, if it is recognised.

    Raises:
        BilmError: of the class `failure`, when the block raises one.
    """
    try:
        yield
    except failure as error:
        if (description := what_it_is(path)) is None:
            raise
        raise failure(f"{path}: is {description}") from error


def what_it_is(path: str | Path) -> str | None:
    """Describe a foreign file or directory, with a remedy, in words that follow "is"; None if unknown."""
    if re.match(r"\w+:/", str(path)):  # a `Path` has lost a slash
        return "a URL; download it and give the path of the file"
    path = Path(path)
    try:
        if path.is_dir():
            return describe_names(file.name for file in path.iterdir())
        if not path.is_file():  # a pipe can be read only once, and may block
            return None
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    if head.startswith(ZIP_MAGIC):
        return describe_names([path.name]) or _ARCHIVE.format("ZIP")
    if path.name.endswith(TAR_ENDINGS):
        return _ARCHIVE.format("tar")
    flags = re.DOTALL | re.IGNORECASE
    return next((kind for start, kind in _BY_START.items() if re.match(start, head, flags)), None)


def not_text(head: bytes, is_plain: bool = True) -> str | None:
    """Describe a file that is given as text but is none, with a remedy, in words that follow "is".

    Args:
        head: first bytes of the file, decompressed.
        is_plain: describe markup too, which only `bilm prepare` reads.

    Returns:
        The description, or None for what may be text.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    kind = next((kind for start, kind in _NOT_TEXT.items() if re.match(start, head, re.DOTALL)), None)
    if kind is None and is_plain and (markup := _MARKUP.match(head)):
        kind = f"markup ({markup[1].decode()} ...), not sentences; `bilm prepare` makes a corpus of it"
    return kind


def describe_names(names: Iterable[str]) -> str | None:
    """Describe a directory or archive with files of these names, as `what_it_is`."""
    present = [PurePosixPath(name).name for name in names]
    kinds = (kind for pattern, kind in _BY_NAME.items() if any(map(re.compile(pattern).fullmatch, present)))
    return next(kinds, None)
