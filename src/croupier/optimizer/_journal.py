"""A journal of a run on disk, apart from `training`: another process resumes it, and privacy is neither lost nor spent twice.

The file says which point a round asks about, and in which coordinates where earlier rounds have found some, before anybody is
asked, and what came back after. A run that is begun again with it does the answered rounds from the file. A round that was asked
but not answered is asked again about the same point in the same coordinates, under the same secret, so that the users answer with
the very same noise: that is one release, not two.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ..files import append, json_line, json_object, lock, sync_folder, written_whole
from ..problem.problem import Coordinates
from ..protocol.randomness import Secret
from ..validation import ArgumentError, Found, whole
from .result import Round, nearly

Floats = NDArray[np.float64]
# The version changes whenever the same secret would give other noise: a question must not be answered twice, with two of them.
FORMAT, VERSION = "croupier journal", 3
_BEGINNING = f'{{"format": "{FORMAT}"'.encode()


class Journal:
    """The record of a run with these facts (JSON values), in the file `path`; without a path it is kept nowhere.

    `secret` is what all randomness of the run is derived from: anyone who reads the file before the run has ended can take the
    noise away, so it is made for its owner alone, and the secret is dropped from it when the run ends. `run` names the run. Use it
    as a context: one process at a time has the file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, facts: dict[str, Any], seed: int | None) -> None:
        self.path = None if path is None else Path(path).resolve()  # of a link, the file that it leads to
        self._file: int | None = None
        self._asked: tuple[int, Floats] | None = None
        self._coordinates: Coordinates | None = None  # the last that were asked in
        self._answered: list[tuple[Round, bool]] = []
        self._records: str | None = None
        self.finished = self.failed = False
        remedy = "Leave it out: a seed makes a run reproducible, NOT private."
        seed = None if seed is None else whole("seed", seed, at_least=0, remedy=remedy)
        secret = Secret.fresh() if seed is None else Secret.of_seed(seed)
        self._header = {"format": FORMAT, "version": VERSION, "facts": json.loads(json.dumps(facts)), "seed": seed}
        self._header |= {"run": os.urandom(16).hex(), "secret": secret.key.hex()}
        if self.path is not None:
            self._open(self.path)
        key = self._header["secret"]
        self.secret = None if key is None else Secret(bytes.fromhex(key), private=seed is None)

    @property
    def run(self) -> str:
        return str(self._header["run"])

    @property
    def kept(self) -> bool:
        return self.path is not None

    def confirm(self, records: bytes | None) -> None:
        """Refuse to resume with other records than the run began with: under the same noise the difference would show them."""
        digest = None if records is None else records.hex()
        if self._records is None:
            self._records = digest or "unknown"
            self._append({"records": self._records})
        elif self._records != (digest or "unknown"):
            allowed = "the records that the run began with"
            remedy = "Restore them to resume, or start another run with another file; what this one spent stays spent."
            raise ArgumentError(
                "checkpoint", Found(f"{self.path} was started with other records: the data has changed since"), allowed, remedy
            )

    def recorded(self, index: int, theta: Floats) -> tuple[Round, bool] | None:
        """The round if it was answered already, and whether privately."""
        if index > len(self._answered):
            return None
        self._require(nearly(self._answered[index - 1][0].theta, theta))
        return self._answered[index - 1]

    def ask(self, index: int, theta: Floats, coordinates: Coordinates | None = None) -> tuple[Floats, Coordinates | None]:
        """Write down what is about to be asked; returns the point to ask about and the coordinates to ask in.

        They are those of an earlier attempt to the last bit. Coordinates that are the last ones but for rounding are those: so all
        rounds share them wherever they were found again, and they are written where they change.
        """
        if self._asked is not None and self._asked[0] == index:
            self._require(nearly(self._asked[1], theta) and (coordinates is None or self._still(coordinates)))
            return self._asked[1], None if coordinates is None else self._coordinates
        line = {"ask": index, "theta": theta.tolist()}
        if coordinates is not None:
            then = self._coordinates
            if then is not None and self._still(coordinates):
                coordinates = then if then.focus == coordinates.focus else replace(then, focus=coordinates.focus)
            if coordinates is not then:
                line |= {"coordinates": coordinates.to_dict(), "rows": [coordinates.features, coordinates.constant]}
            self._coordinates = coordinates
        self._asked = index, theta
        self._append(line)
        return theta, coordinates

    def _still(self, now: Coordinates) -> bool:
        """Whether these are the last coordinates but for rounding, whatever the focus is."""
        then = self._coordinates
        return then is not None and nearly(then.turn.ravel(), now.turn.ravel()) and nearly(then.centre, now.centre)

    def answer(self, answered: Round, private: bool) -> None:
        """Write down what came back."""
        self._answered.append((answered, private))
        self._append({"answer": answered.to_dict(), "private": private})

    def fail(self) -> None:
        """Write down that a record may have ended the run: what it has released until then is not covered by itself."""
        self.failed = True
        self._append({"failed": True})

    def finish(self) -> None:
        """The run has ended: drop the secret. The file still gives the result again, without asking anybody."""
        if self.path is None or self.finished:
            return
        lines = [self._header | {"secret": None}, {"records": self._records}]
        lines += [{"answer": answered.to_dict(), "private": private} for answered, private in self._answered]
        data = b"".join(json_line(line) for line in [*lines, {"finished": True}])
        with written_whole(self.path, private=True) as part:
            part.write_bytes(data)
            if os.name == "nt":
                self.close()  # Windows does not replace a file that is open
        self.finished = True

    def _open(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as problem:
            allowed = f"a file that can be written ({problem.strerror})"
            raise ArgumentError("checkpoint", str(path), allowed, "Choose another path; nobody was asked.") from None
        try:
            self._require_mine(path)
            self._lock(path)
            self._take_up(path)
        except BaseException:
            self.close()
            raise

    def _take_up(self, path: Path) -> None:
        """Read what was written, or write the first line. An incomplete line was not acted upon, or can be made again."""
        *lines, rest = path.read_bytes().split(b"\n")
        if lines:
            self._require_same(json_object(lines[0]) or {})
        elif not _BEGINNING.startswith(rest[: len(_BEGINNING)]):
            self._refuse_file()
        os.chmod(path, 0o600)
        os.truncate(path, sum(len(line) + 1 for line in lines))
        if not lines:
            self._append(self._header)
            sync_folder(path.parent)
        for number, line in enumerate(lines[1:], start=2):
            values = json_object(line)
            try:
                self._read(values or {})
            except (ValueError, TypeError, KeyError):
                raise _damaged(path, number) from None

    def _require_mine(self, path: Path) -> None:
        """Refuse a file that others may read or write, now or later."""
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
            allowed = "a plain file that you own, because it holds the secret of the run"
            raise ArgumentError("checkpoint", str(path), allowed, "Choose another path; nobody was asked.")

    def _lock(self, path: Path) -> None:
        if self._file is None:
            return
        try:
            lock(self._file)
        except BlockingIOError:
            remedy = "Wait for it, stop it, or use another file for this run."
            raise ArgumentError("checkpoint", str(path), "a file that no other run has open", remedy) from None
        except OSError as problem:
            allowed = f"on a file system with locks ({problem.strerror})"
            raise ArgumentError("checkpoint", str(path), allowed, "Choose another path; nobody was asked.") from None

    def _read(self, line: dict[str, Any]) -> None:
        if "records" in line:
            self._records = str(line["records"])
        elif "ask" in line:
            self._asked = int(line["ask"]), np.asarray(line["theta"], dtype=np.float64)
            if "coordinates" in line:
                self._coordinates = Coordinates.from_dict(line["coordinates"], *line["rows"])
        elif "answer" in line:
            self._answered.append((Round.from_dict(line["answer"]), bool(line["private"])))
        elif "failed" in line:
            self.failed = True
        elif line["finished"]:
            self.finished = True

    def _require_same(self, header: dict[str, Any]) -> None:
        """Refuse a file of something else, or of another run; take over its secret and name."""
        if header.get("format") != FORMAT:
            self._refuse_file()
        if header.get("version") != VERSION:
            self._refuse_file(Found(f"{self.path} is of version {header.get('version')}"))
        try:
            theirs = header["facts"] | {"seed": header["seed"]}
            self._header, mine = header, self._header["facts"] | {"seed": self._header["seed"]}
        except (KeyError, TypeError):
            raise _damaged(self.path, 1) from None
        for name in mine:
            if theirs.get(name) != mine[name]:
                remedy = "To resume, use the arguments of the first call, or use another file; what this one spent stays spent."
                raise ArgumentError(
                    "checkpoint", Found(f"{self.path} is of a run with another {name}"), f"a run with this {name}", remedy
                )

    def _refuse_file(self, found: Found | None = None) -> NoReturn:
        allowed = f"a new file, or one of {FORMAT!r}, version {VERSION}"
        raise ArgumentError(
            "checkpoint",
            found or str(self.path),
            allowed,
            "A run can be resumed only by the version that began it. Choose another file; this one is left as it is.",
        )

    def _require(self, same: bool) -> None:
        if not same:
            allowed = "a run of this problem, which would ask about other points"
            raise ArgumentError("checkpoint", str(self.path), allowed, "Use another file; what this one spent stays spent.")

    def _append(self, line: dict[str, Any]) -> None:
        if self._file is not None and self.path is not None:
            append(self._file, json_line(line), self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _damaged(path: Path | None, number: int) -> ArgumentError:
    remedy = "Do not use this file; count its run's whole budget as spent."
    return ArgumentError("checkpoint", Found(f"{path} is damaged at line {number}"), "lines that a run wrote", remedy)
