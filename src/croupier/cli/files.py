"""Where a command's output may go: nothing is overwritten unasked."""

from __future__ import annotations

import os
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
