"""A role's signing keys over the years: one that signs new tasks, and older ones until the tasks that name them have ended."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ...files import create_private, write_whole
from ...validation import ArgumentError
from ..wire.documents import Document
from ..wire.succession import hex_of, succession, successor
from .server import signing_key


class Keyring:
    """The keys in a role's folder: `signing.key`, and older ones in `keys`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._old = folder, folder / "keys"

    @property
    def current(self) -> Ed25519PrivateKey:
        """The key that new tasks are signed by, or name."""
        return signing_key(self._folder)

    def of(self, public: str) -> Ed25519PrivateKey | None:
        """The private half of one of the role's keys; None if it is none, or was deleted."""
        if public == hex_of(self.current):
            return self.current
        file = self._old / f"{public}.key"
        if not re.fullmatch(r"[0-9a-f]{64}", public) or not file.is_file():
            return None
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))

    def rotate(self) -> Document:
        """Sign new tasks by a new key from now on, announced by the old one. Killed in between, the same again completes it."""
        old = self.current
        self._old.mkdir(exist_ok=True, mode=0o700)
        announced = self._old / f"{hex_of(old)}.successor"
        if announced.exists():  # a key announces one successor: whoever was killed has written it down
            document = Document.from_bytes(announced.read_bytes())
            new = self.of(successor(document, hex_of(old)))
            if new is None:
                raise ArgumentError("--dir", str(self._folder), "a folder with all of its keys", "Restore the folder keys.")
        else:
            new = Ed25519PrivateKey.generate()
            self._write(new)
            self._write(old)
            document = succession(old, new)
            write_whole(announced, document.to_bytes())
        write_whole(self._folder / "signing.key", f"{new.private_bytes_raw().hex()}\n".encode(), private=True)
        return document

    def _write(self, key: Ed25519PrivateKey) -> None:
        file = self._old / f"{hex_of(key)}.key"
        if not file.exists():
            create_private(file, f"{key.private_bytes_raw().hex()}\n".encode())

    def successions(self) -> list[Document]:
        """All that was announced, for whoever knows an old key."""
        files = sorted(self._old.glob("*.successor")) if self._old.is_dir() else []
        return [Document.from_bytes(file.read_bytes()) for file in files]

    def prune(self, used: Collection[str]) -> None:
        """Delete the private halves of older keys that no task uses any more."""
        keep = {*used, hex_of(self.current)}
        for file in self._old.glob("*.successor") if self._old.is_dir() else ():
            if file.stem not in keep:
                (self._old / f"{file.stem}.key").unlink(missing_ok=True)
