"""Rows on disk while a model is trained: more of them than fit into memory, in files that nobody else can open."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError


class RowStore:
    """Rows, targets and users, appended piece by piece and then read as arrays that live in files.

    The files have no name in the folder (or lose it at once, where the system knows no such files): however the process ends, the
    system deletes them with it. Memory stays that of a piece. Use it as a context.

    Parameters
    ----------
    folder : path-like, optional
        Where they lie; the system's folder for temporary files unless given.
    precision : dtype, default numpy.float32
        Of the rows.

    Raises
    ------
    ArgumentError
        Where that is no folder that can be written to.

    Examples
    --------
    >>> with RowStore() as store:
    ...     store.append(np.ones((3, 2), dtype=np.float32), np.zeros(3))
    ...     len(store), store.rows.shape
    (3, (3, 2))
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, precision: Any = np.float32) -> None:
        self._precision = precision
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None and not (self.folder.is_dir() and os.access(self.folder, os.W_OK)):
            raise ArgumentError("work_dir", str(folder), "a folder that can be written to", "It holds the rows during training.")
        self._files: dict[str, Any] = {}
        self._width = self._count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any], targets: NDArray[Any], users: NDArray[np.uint64] | None = None) -> None:
        """Write some records down.

        Parameters
        ----------
        rows : ndarray of shape (records, features)
            Their rows.
        targets : ndarray
            Their targets.
        users : ndarray of uint64, optional
            Whose they are.

        Raises
        ------
        ArgumentError
            Where the disk is full.
        """
        self._width = rows.shape[1]
        self._count += len(rows)
        self._write("rows", rows.astype(self._precision, copy=False))
        self._write("targets", targets.astype(np.float64, copy=False))
        if users is not None:
            self._write("users", users)

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, read from the file as they are used."""
        return self._mapped("rows", self._precision).reshape(-1, self._width)

    @property
    def targets(self) -> NDArray[np.float64]:
        """All targets."""
        return self._mapped("targets", np.float64)

    @property
    def users(self) -> NDArray[np.uint64] | None:
        """Whose each record is; None where every record is a person."""
        return self._mapped("users", np.uint64) if "users" in self._files else None

    def _write(self, name: str, values: NDArray[Any]) -> None:
        try:
            if name not in self._files:
                self._files[name] = self._stack.enter_context(tempfile.TemporaryFile(dir=self.folder))  # noqa: SIM115
            self._files[name].write(np.ascontiguousarray(values).data)
        except OSError as problem:
            where = str(self.folder or tempfile.gettempdir())
            allowed = f"a folder with room for the rows ({problem.strerror})"
            raise ArgumentError("work_dir", where, allowed, "Choose another folder; nobody was asked.") from None

    def _mapped(self, name: str, kind: Any) -> NDArray[Any]:
        file = self._files[name]
        file.flush()
        return np.asarray(np.memmap(file, dtype=kind, mode="r"))
