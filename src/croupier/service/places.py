"""Clients that a round waits for, since they have asked for it and are about to answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

# Seconds for which a round that a client has asked for waits for it.
_PROMISED = 60.0


class Places:
    """Promises to clients who are about to answer a round: for a while it does not end without those who have asked for it.

    So nobody randomizes in vain: a client answers once, and must not do so again because its round has ended.
    """

    def __init__(self, promised: Sequence[tuple[str, str, float]]) -> None:
        self._round = promised[0][0] if promised else ""
        self._until = {client: until for _, client, until in sorted(promised, key=lambda promise: promise[2])}

    def promise(self, round_id: str, client: str, *, ends: bool) -> float | None:
        """Until when the round waits for the client. Whoever asks again has what it was promised, and no longer.

        None where the round ends without it: then there are no new promises.
        """
        standing = self._standing(round_id)
        if client not in standing and not ends:
            standing[client] = time.time() + _PROMISED  # at the end: the oldest are first
        return standing.get(client)

    def used(self, client: str) -> None:
        """The report is here."""
        self._until.pop(client, None)

    def any_left(self, round_id: str) -> bool:
        return bool(self._standing(round_id))

    def _standing(self, round_id: str) -> dict[str, float]:
        if round_id != self._round:
            self._round, self._until = round_id, {}
        now = time.time()
        while self._until:
            client, until = next(iter(self._until.items()))
            if now <= until <= now + _PROMISED:  # later than that where the clock was set back
                break
            del self._until[client]
        return self._until
