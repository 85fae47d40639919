"""Files that commands write: nothing is overwritten unasked, and nothing is left half written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..validation import ArgumentError


def check_output(path: Path, force: bool) -> None:
    """Refuse a place that cannot be written to, before anything is done for it."""
    folder = path.parent
    if not folder.is_dir():
        raise ArgumentError("-o", str(path), "in a folder that exists", f"Make it first: mkdir -p {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise ArgumentError("-o", str(path), "a file in a folder that can be written to", "Choose another place.")
    if path.exists() and not force:
        raise ArgumentError("-o", str(path), "a file that does not exist yet", "Choose another name, or overwrite it with --force.")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write to that takes its name only once it is complete."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
