"""Clients that a round waits for, since they have asked for it and are about to answer.

For a while a round does not end without those who have asked for it. So nobody randomizes in vain: a client answers once, and must
not do so again because its round has ended. All of it is in the database, where every process of the shuffler sees it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from . import store as tables

# Seconds for which a round that a client has asked for waits for it.
_PROMISED = 60.0


def promise_places(connection: Connection, round_id: str, clients: Collection[str], now: float) -> None:
    """Let the round wait for these clients, as long as it waits for anybody.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    round_id : str
        The round.
    clients : collection of str
        Who has asked for it, and has no place.
    now : float
        The time by the shuffler's clock.
    """
    until = now + _PROMISED
    rows = [{"client": client, "round": round_id, "until": until} for client in clients]
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    new = insert(tables.places)
    # An old place of another round, or one that another process has promised at the same time, gives way.
    connection.execute(new.on_conflict_do_update(index_elements=["client"], set_={"round": round_id, "until": until}), rows)


def who_has_places(connection: Connection, round_id: str, clients: Collection[str], now: float) -> set[str]:
    """Return for whom of them the round waits: whoever asks again has what it was promised, and no longer.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    round_id : str
        The round.
    clients : collection of str
        Who has asked.
    now : float
        The time by the shuffler's clock.

    Returns
    -------
    set of str
        Those with a place.
    """
    among = _standing(round_id, now) & tables.places.c.client.in_(clients)
    return set(connection.execute(select(tables.places.c.client).where(among)).scalars())


def any_place_left(connection: Connection, round_id: str, now: float) -> bool:
    """Return whether the round waits for anybody.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    round_id : str
        The round.
    now : float
        The time by the shuffler's clock.

    Returns
    -------
    bool
        True where it does.
    """
    return connection.execute(select(tables.places.c.client).where(_standing(round_id, now)).limit(1)).scalar() is not None


def forget_places(connection: Connection, clients: Collection[str]) -> None:
    """Strike out the places that were kept for these clients.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    clients : collection of str
        Whose reports are here.
    """
    connection.execute(delete(tables.places).where(tables.places.c.client.in_(clients)))


def _standing(round_id: str, now: float) -> ColumnElement[bool]:
    """Places of a round that hold now; later than any promise is none, where a machine's clock differs."""
    places = tables.places.c
    return (places.round == round_id) & places.until.between(now, now + _PROMISED)
