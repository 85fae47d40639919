"""The shuffler's database: its tables, who is enrolled and drawn by lot, and each round as a state machine.

Where a round has blocks, each of them is a lot, with a row of its own in all tables: what is said of a round holds for each.
A round is open until it is full or late, made when its batch is written, checked while the analyzer decides which reports are left
out, summed when the one sum over the others is written, forwarded when the analyzer has what it gets, and refused where it gets
nothing. Every change of state is one method of `Rounds` and one transaction: whatever process is killed when, the same batch, the
same list and the same sum are sent.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Enum,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    TableValuedAlias,
    bindparam,
    cast,
    column,
    delete,
    func,
    insert,
    literal_column,
    null,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ...population.population import draw_lots as independent_lots
from ...protocol import SecureRandom
from ...protocol._sampling import permutation
from ...protocol.randomness import Secret
from ..net.database import Additions, Database, Statement, hash_of, role_tables
from ..wire.documents import Document, Exclusions, WireError, sha256
from ..wire.enrolment import TokenRequests, blank_parts
from ..wire.reports import TOKEN_BYTES
from ..wire.task import Accepted, ParsedReport, RefusedError, Task, TaskRound, most_excluded
from ..wire.transports import TRANSPORTS, SealedReport

log = logging.getLogger("croupier")
SHUFFLER = role_tables()
# Clients that are enrolled in one transaction.
TOGETHER = 100_000


class RoundState(StrEnum):
    """Where a round is; see the top of the module for what leads from one to the next."""

    OPEN = "open"
    MADE = "made"
    CHECKED = "checked"
    SUMMED = "summed"
    FORWARDED = "forwarded"
    REFUSED = "refused"


clients = Table("clients", SHUFFLER, Column("id", String, primary_key=True), Column("token_hash", String, unique=True))
# Invitations by their hashes: whom each enrols, until when, and the hash of the token of the device that has claimed it.
invitations = Table(
    "invitations",
    SHUFFLER,
    Column("id", String, primary_key=True),
    Column("client", ForeignKey("clients.id"), nullable=False, index=True),
    Column("until", Float, nullable=False),  # seconds since 1970
    Column("token_hash", String),
)
rounds = Table(
    "rounds",
    SHUFFLER,
    Column("id", String, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # of the lot: that of the round, where it has no blocks
    Column("document", LargeBinary, nullable=False),
    Column("opened", Float, nullable=False),  # seconds since 1970
    Column("batch", LargeBinary),  # made, and not yet known to have arrived
    Column("state", Enum(RoundState, native_enum=False, values_callable=list), nullable=False),
    Column("digest", String),  # of the document, or of the block: what reports are bound to
    Column("arrived", Integer),  # how many reports it has, or had
    Index("rounds_digest", "digest", unique=True),
)
# Reports of the present round. What they name is there: the round's row is locked when they come, and clients have taken part.
reports = Table(
    "reports",
    SHUFFLER,
    Column("round", String, primary_key=True),
    Column("client", String, primary_key=True),
    Column("seal", String, nullable=False),  # the encapsulated key: none is taken twice
    Column("body", LargeBinary, nullable=False),
    Index("reports_seal", "round", "seal", unique=True),
)
taken_part = Table(
    "taken_part",
    SHUFFLER,
    Column("slot", String, primary_key=True),
    Column("client", ForeignKey("clients.id"), primary_key=True),
    sqlite_with_rowid=False,  # one tree of pages to write or search, not two
)
# Who has asked for a round and may answer it until when; gone with the report, and with the batch.
reservations = Table(
    "reservations",
    SHUFFLER,
    Column("client", ForeignKey("clients.id"), primary_key=True),
    Column("round", ForeignKey("rounds.id"), nullable=False),
    Column("until", Float, nullable=False),  # seconds since 1970
)
# Who was drawn by lot, and for which rounds (or lots, where rounds have blocks), from the first to the last.
lots = Table(
    "lots",
    SHUFFLER,
    Column("client", ForeignKey("clients.id"), primary_key=True),
    Column("first", Integer, nullable=False),
    Column("last", Integer, nullable=False),
    sqlite_with_rowid=False,  # one tree of pages to write or search, not two
)

# Reports of a full round whose transport is checked, by their places in the batch, until the analyzer has said which are left out.
checking = Table(
    "checking",
    SHUFFLER,
    Column("round", String, primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("client", String),
    Column("body", LargeBinary, nullable=False),
)
# The batch that the analyzer checks, and its signed list of exclusions, which is taken once.
commitments = Table(
    "commitments",
    SHUFFLER,
    Column("round", ForeignKey("rounds.id"), primary_key=True),
    Column("batch", String, nullable=False),  # its digest
    Column("document", LargeBinary),
)
# Whose reports were left out, and in which round.
excluded = Table(
    "excluded",
    SHUFFLER,
    Column("round", ForeignKey("rounds.id"), primary_key=True),
    Column("client", ForeignKey("clients.id"), primary_key=True),
)
# Batches that the analyzer does not have yet, and since when.
unforwarded = Table(
    "unforwarded", SHUFFLER, Column("round", ForeignKey("rounds.id"), primary_key=True), Column("since", Float, nullable=False)
)
# The clock of rounds (see `RoundClock`): for each boot of a machine, what to add to the seconds since then.
clocks = Table("clocks", SHUFFLER, Column("boot", String, primary_key=True), Column("zero", Float, nullable=False))
# Tokens for blanks, where an enroller counts them: by slot and part, the requests until they are signed, and the tokens after that
# until the round's batch is made. Rows stay, so that none is asked for twice.
blank_tokens = Table(
    "blank_tokens",
    SHUFFLER,
    Column("slot", Integer, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("requests", LargeBinary, nullable=False),
    Column("tokens", LargeBinary),
)

# Many values of a statement that is always the same: one parameter, where an `IN` of each would be compiled, bound and prepared
# anew for every number of them. Each value is looked up by itself: PostgreSQL takes a table that it has not analyzed for nearly
# empty, and would rather read all rows of a round for every few of them.


class _Given(FunctionElement[Any]):
    """The values of a list of texts (see `Statement`), as rows."""

    name, inherit_cache = "given", True


@compiles(_Given, "sqlite")
def _given_by_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_Given, "postgresql")
def _given_by_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return f"(SELECT unnest({compiler.process(element.clauses, **options)}) AS value)"


def _given(values: str = "names") -> TableValuedAlias:
    return _Given(bindparam(values, type_=ARRAY(String))).table_valued(column("value", String), name="given")


_NOTHING = cast(null(), LargeBinary)


def _found(key: Column[Any], *where: ColumnElement[bool], value: Column[Any] | None = None, values: str = "names") -> Select[Any]:
    """The values of this parameter that a key has in a row that is as asked: at most one has each. With it a value of the row."""
    given = _given(values)
    query = select(key if value is None else value).where(key == given.c.value, *where)
    row: Any = query.correlate(given).scalar_subquery()
    return select(given.c.value, _NOTHING if value is None else row).where(row.is_not(None))


# Who is enrolled.


def enrol(store: Database, client: str) -> str:
    """A token for a client: it is told once, and only its hash is kept."""
    [token] = enrol_all(store, [client])
    return token


def enrol_all(store: Database, names: Sequence[str]) -> list[str]:
    """A token for each of these clients, in one transaction."""
    tokens = [secrets.token_urlsafe(32) for _ in names]
    rows = [{"id": name, "token_hash": hash_of(token)} for name, token in zip(names, tokens, strict=True)]
    with store.begin() as connection:
        connection.execute(insert(clients), rows)
    return tokens


def new_name() -> str:
    """A name for a client that says nothing about who it is."""
    return secrets.token_hex(8)


_AMONG_HASHES = Statement(_found(clients.c.token_hash, value=clients.c.id))


def clients_of(store: Database, hashes: Collection[str]) -> dict[str, str]:
    """Who has the tokens with these hashes."""
    if not hashes:
        return {}
    with store.look() as connection:
        return dict(_AMONG_HASHES.rows(connection, names=list(hashes)))


def revoke(store: Database, names: Collection[str]) -> list[str]:
    """Strike out clients' tokens: whoever has one is no longer enrolled, within half a minute."""
    with store.begin() as connection:
        known = connection.execute(select(clients.c.id).where(clients.c.id.in_(names)).order_by(clients.c.id)).scalars().all()
        connection.execute(update(clients).where(clients.c.id.in_(known)).values(token_hash=None))
        connection.execute(update(invitations).where(invitations.c.client.in_(known)).values(token_hash=""))  # that of no token
    return list(known)


def excluded_clients(store: Database) -> list[tuple[str, int]]:
    """Return whose reports were left out, and in which round."""
    query = select(excluded.c.client, rounds.c.document).join_from(excluded, rounds)
    with store.look() as connection:
        rows = connection.execute(query.order_by(rounds.c.number, excluded.c.client)).all()
    return [(row.client, json.loads(Document.from_bytes(row.document).text)["number"]) for row in rows]


def forget_people(store: Database) -> None:
    """Delete what people sent, who took part and who was drawn, of a task that has ended; whose reports were left out stays."""
    with store.begin() as connection:
        connection.execute(update(rounds).values(batch=None))  # no report is taken and no batch made meanwhile
        for table in (reports, checking, reservations, taken_part, lots, unforwarded, blank_tokens):
            connection.execute(delete(table))
        connection.execute(delete(clients).where(clients.c.id.not_in(select(excluded.c.client))))
    store.wipe()


def clock_zero(store: Database, boot: str, now: float, since_boot: float) -> float:
    """The time of a machine's boot by the first process that asked; never so that it is earlier than the last round's opening."""
    query = select(clocks.c.zero).where(clocks.c.boot == boot)
    with store.begin() as connection:
        zero = connection.execute(query).scalar()
        if zero is None:
            last = connection.execute(select(func.max(rounds.c.opened))).scalar()
            dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
            new = dialect.insert(clocks).values(boot=boot, zero=max(now, last or 0.0) - since_boot)
            connection.execute(new.on_conflict_do_nothing())
            zero = connection.execute(query).scalar_one()  # another process may have been faster
    return float(zero)


# Who is asked in which rounds, drawn by lot, and who has taken part.

_HAS_ANSWERED = _found(taken_part.c.client, taken_part.c.slot == bindparam("slot"))
_IS_DRAWN = _found(lots.c.client, lots.c.first <= bindparam("last"), lots.c.last >= bindparam("first"))
_AMONG_ANSWERED, _AMONG_LOTS = Statement(_HAS_ANSWERED), Statement(_IS_DRAWN)
_AMONG_ALL_LOTS = Statement(_found(lots.c.client, value=lots.c.first))


def draw_lots(connection: Connection, task: Task) -> None:
    """Draw uniformly at random who is asked in which rounds; clients that are left over, or are enrolled later, are not asked.

    The proof is about batches that are chosen without a look at the data. When a client comes may depend on its records, so
    that it must not decide who is in a batch: neither the client itself nor those who come after it. A share of honest users is
    one of the task's users: then these have to be all who are enrolled. Secret lots are independent of each other.
    """
    names = connection.execute(select(clients.c.id).order_by(clients.c.id)).scalars().all()
    if len(names) < task.users or (len(names) > task.users and task.schedule.honest < 1):
        remedy = "enrol them first" if len(names) < task.users else "the extra people might not belong to the honest share"
        raise WireError(f"a task for {task.users} users, drawn by lot, where {len(names)} are enrolled: {remedy}")
    chosen = [names[who] for who in permutation(SecureRandom(), len(names)).tolist()]
    drawn = _by_permutation(task, chosen) if task.secret is None else _by_secret_lots(task, chosen[: task.users])
    connection.execute(insert(lots), drawn)


def _by_permutation(task: Task, names: Sequence[str]) -> list[dict[str, Any]]:
    """Batches of known sizes, one after the other."""
    seats: list[range] = []
    for number, phase in enumerate(task.schedule.phases, start=1):
        rounds = task.rounds_of(number)
        whole = [rounds] if task.schedule.interactivity == "full" else [range(one, one + 1) for one in rounds]
        seats += [some for some in whole for _ in range(phase.batch)]
    return [{"client": name, "first": some[0], "last": some[-1]} for name, some in zip(names, seats, strict=False)]


def _by_secret_lots(task: Task, names: Sequence[str]) -> list[dict[str, Any]]:
    """Independent and uniform lots, by the law of a run in memory; who is one too many for a lot is left out by chance."""
    plan: Any = task.schedule.phases[0].lots
    batches = independent_lots(Secret.fresh(), len(names), plan.lots, plan.size)
    users = [(number, user) for number, batch in enumerate(batches, start=1) for user in batch.members(0, len(names)).tolist()]
    return [{"client": names[user], "first": number, "last": number} for number, user in users]


def who_answered(connection: Connection, task: Task, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them has taken part: in the task, or in this round."""
    return who_has(connection, task.slot(task_round), names)


def who_has(connection: Connection, slot: str, names: Collection[str]) -> set[str]:
    """Who of them has used this slot."""
    return {row[0] for row in _AMONG_ANSWERED.rows(connection, slot=slot, names=list(names))}


def nobody_took_part(store: Database) -> bool:
    """Return whether no report of any client was ever taken."""
    with store.look() as connection:
        return connection.execute(select(taken_part.c.client).limit(1)).scalar() is None


def who_is_drawn(connection: Connection, task: Task, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them may answer the round, or its block where it names one: those whose lot it is."""
    first, last = _lots_asked(task, task_round)
    return {row[0] for row in _AMONG_LOTS.rows(connection, first=first, last=last, names=list(names))}


def _lots_asked(task: Task, task_round: TaskRound) -> tuple[int, int]:
    """The first and the last lot that a round, or its block, asks."""
    places = task.lots_of(task_round.number)
    return (places[0], places[-1]) if task_round.block is None else (task_round.lot(task),) * 2


def lots_of(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """The first rounds, or lots, that these clients were drawn for; who was not drawn is left out."""
    return dict(_AMONG_ALL_LOTS.rows(connection, names=list(names)))


# Clients that a round waits for, since they have asked for it and are about to answer.
#
# For a while a round does not end without those who have asked for it. So nobody randomizes in vain: a client answers once, and
# must not do so again because its round has ended. All of it is in the database, where every process of the shuffler sees it.

# Seconds for which a round that a client has asked for waits for it.
PROMISED = 60.0
# Reservations of a round that hold now; later than any promise is none, where a machine's clock differs.
_STANDING = (reservations.c.round == bindparam("round")) & reservations.c.until.between(bindparam("now"), bindparam("last"))
_AMONG_RESERVATIONS = Statement(_found(reservations.c.client, _STANDING))
_FORGET_RESERVATIONS = Statement(delete(reservations).where(reservations.c.client.in_(select(_given().c.value))))


def reserve(connection: Connection, round_id: str, clients: Collection[str], now: float) -> None:
    """Let the round wait for these clients, as long as it waits for anybody."""
    until = now + PROMISED
    rows = [{"client": client, "round": round_id, "until": until} for client in clients]
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    new = dialect.insert(reservations)
    # An old reservation for another round, or one that another process has promised at the same time, gives way.
    connection.execute(new.on_conflict_do_update(index_elements=["client"], set_={"round": round_id, "until": until}), rows)


def who_has_reservations(connection: Connection, round_id: str, clients: Collection[str], now: float) -> set[str]:
    """Return for whom of them the round waits: whoever asks again has what it was promised, and no longer."""
    standing = _AMONG_RESERVATIONS.rows(connection, round=round_id, now=now, last=now + PROMISED, names=list(clients))
    return {row[0] for row in standing}


def any_reservation_left(connection: Connection, round_id: str, now: float) -> bool:
    """Return whether the round waits for anybody."""
    values = {"round": round_id, "now": now, "last": now + PROMISED}
    return connection.execute(select(reservations.c.client).where(_STANDING).limit(1), values).scalar() is not None


def forget_reservations(connection: Connection, clients: Collection[str]) -> None:
    """Strike out the reservations of these clients."""
    _FORGET_RESERVATIONS.run(connection, names=list(clients))


# Tokens for blanks.


def missing_blanks(store: Database, task: Task) -> tuple[int, int, TokenRequests] | None:
    """The first part of a slot's blanks that has no tokens yet, with its requests, which are on disk and drawn once."""
    enroller, slots = task.enroller, blank_slots(task)
    here, parts = blank_tokens.c, blank_parts(enroller.blanks) if enroller is not None else []
    with store.look() as connection:
        rows = connection.execute(select(here.slot, here.part).where(here.tokens.is_not(None)))
        known = {(row.slot, row.part) for row in rows}
    missing = next(((slot, part) for slot in slots for part in range(len(parts)) if (slot, part) not in known), None)
    if missing is None or enroller is None:
        return None
    slot, part = missing
    drawn = TokenRequests.drawn(task.id, enroller, slot, parts[part])
    with store.begin() as connection:
        dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
        new = dialect.insert(blank_tokens).values(slot=slot, part=part, requests=json.dumps(drawn.to_rows()).encode())
        connection.execute(new.on_conflict_do_nothing())  # those that were drawn before, by whichever process, are asked for again
        kept = connection.execute(select(here.requests).where((here.slot == slot) & (here.part == part))).scalar_one()
    return slot, part, TokenRequests.from_rows(json.loads(kept), slot)


def keep_blanks(store: Database, slot: int, part: int, tokens: Sequence[bytes]) -> None:
    """Write down tokens, once, and forget what could link them to their requests."""
    here = blank_tokens.c
    with store.begin() as connection:
        same = (here.slot == slot) & (here.part == part) & here.tokens.is_(None)
        connection.execute(update(blank_tokens).where(same).values(requests=b"[]", tokens=b"".join(tokens)))


def blanks_at_hand(store: Database, task: Task, slot: int) -> list[bytes] | None:
    """The tokens of a slot's blanks; None if some are not here."""
    if task.enroller is None:
        return []
    here = blank_tokens.c
    with store.look() as connection:
        parts = connection.execute(select(here.tokens).where(here.slot == slot).order_by(here.part)).scalars().all()
    kept = b"".join(part or b"" for part in parts)
    tokens = [kept[start : start + TOKEN_BYTES] for start in range(0, len(kept), TOKEN_BYTES)]
    return tokens if len(tokens) == task.enroller.blanks else None


def blank_slots(task: Task) -> range:
    """The slots whose blanks have tokens: one per lot, where lots are secret and somebody counts."""
    return range(1, len(task.enroller.moduli) + 1) if task.enroller is not None and task.secret is not None else range(0)


# A round, from its opening until nothing of it is left but who took part.

# What is known of reports' senders and seals before they are taken, in one answer: a name or seal, a kept report, and a letter.
_IN_ROUND = reports.c.round == bindparam("round")
_BEFORE = Statement(
    union_all(
        _HAS_ANSWERED.add_columns(literal_column("'a'")),
        _IS_DRAWN.add_columns(literal_column("'d'")),
        _found(reports.c.seal, _IN_ROUND, values="seals").add_columns(literal_column("'s'")),
        _found(reports.c.client, _IN_ROUND, value=reports.c.body).add_columns(literal_column("'r'")),
    )
)
# One row alone is found: PostgreSQL would send the documents and batches of all blocks.
_LEAST = select(func.min(rounds.c.number)).where(rounds.c.state == bindparam("in_state", type_=String)).scalar_subquery()
_FIRST = Statement(select(rounds.c.id, rounds.c.document, rounds.c.batch, rounds.c.opened).where(rounds.c.number == _LEAST))
_STATE_COLUMNS = select(rounds.c.state, rounds.c.arrived, rounds.c.opened).where(rounds.c.id == bindparam("round"))
_STATE = Statement(_STATE_COLUMNS)
_STATE_TO_CHANGE = Statement(_STATE_COLUMNS.with_for_update(key_share=True))  # what names the row may go on
_THE_ROUND = update(rounds).where(rounds.c.id == bindparam("round"))
_TAKE = Additions((taken_part, reports), _THE_ROUND.values(arrived=bindparam("count")))
_HOLD = Additions((checking,), _THE_ROUND.values(state=bindparam("made"), batch=bindparam("made_batch")))


class KnownRound(NamedTuple):
    """A round in some state."""

    id: str
    document: bytes
    batch: Any  # bytes once it is made
    opened: float


class Progress(NamedTuple):
    """Where a round is."""

    state: str  # a `RoundState`
    arrived: int
    opened: float


class Rounds:
    """The rounds of a shuffler, and all that changes their states.

    Guarantee
    ---------
    A batch is made once, in uniformly random order, in the transaction that deletes its reports; where reports are checked, they go
    with the one sum over those that are not left out. Of one round one sum leaves the shuffler, over all reports but those in the
    first list of exclusions that it was given, and only if these are not more than the task's margin allows.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey) -> None:
        self._store, self._key, self._analyzer = store, key, analyzer

    # What is known of rounds.

    def first(self, state: RoundState) -> KnownRound | None:
        """The first round in a state, if there is one."""
        with self._store.look() as connection:
            return first_round(connection, state)

    def named(self, digest: bytes) -> tuple[Document, int]:
        """The document and the lot of the round that reports name by a digest."""
        with self._store.look() as connection:
            query = select(rounds.c.document, rounds.c.number).where(rounds.c.digest == digest.hex())
            known = connection.execute(query).first()
        if known is None:
            now = self.first(RoundState.OPEN)
            raise RefusedError(400, "a report for another round") if now else RefusedError(409, "no round takes reports now")
        return Document.from_bytes(known.document), known.number

    def is_known(self, round_id: str) -> bool:
        """Whether a round, or a block of it, was opened, whatever became of it."""
        with self._store.look() as connection:
            return connection.execute(select(rounds.c.id).where(rounds.c.id == round_id)).scalar() is not None

    def open_batches(self) -> set[str]:
        """The names of rounds, or blocks of them, that take reports."""
        with self._store.look() as connection:
            return set(connection.execute(select(rounds.c.id).where(rounds.c.state == RoundState.OPEN)).scalars())

    def last_opened(self) -> tuple[int, float] | None:
        """The number of the last round, or lot, and when it was opened."""
        query = select(rounds.c.number, rounds.c.opened).order_by(rounds.c.number.desc())
        with self._store.look() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row.number, row.opened)

    def oldest_unforwarded(self) -> float | None:
        """Since when a batch, or a released sum, has been waiting to reach the analyzer."""
        since = func.min(func.coalesce(unforwarded.c.since, rounds.c.opened))
        waiting = rounds.c.state.in_([RoundState.MADE, RoundState.SUMMED])
        with self._store.look() as connection:
            oldest: float | None = connection.execute(select(since).outerjoin_from(rounds, unforwarded).where(waiting)).scalar()
        return oldest

    # Changes of state, each one transaction.

    def open(self, task: Task, task_round: TaskRound, document: Document, now: float) -> None:
        """Nothing -> open: reports of all its blocks are taken from `now` on. The same again changes nothing."""
        parts = task_round.parts(task)
        with self._store.begin() as connection:
            same = (rounds.c.id == parts[0].batch) | (rounds.c.number == parts[0].lot(task))
            known = connection.execute(select(rounds.c.id, rounds.c.document).where(same)).first()
            if known is None:
                for part in parts:
                    about = {"id": part.batch, "number": part.lot(task), "digest": part.digest(document).hex()}
                    values = about | {"document": document.to_bytes(), "state": RoundState.OPEN, "arrived": 0, "opened": now}
                    connection.execute(insert(rounds).values(**values))
            elif known.id != parts[0].batch:
                raise WireError(
                    f"a second round {task_round.number}: one was opened before, which the analyzer has forgotten. Its users are "
                    "not asked again. Bring the analyzer's database and journal back from after that round, or begin a new task"
                )
            elif known.document != document.to_bytes():
                raise WireError("a round that was opened with other words")

    def accept(self, task: Task, parsed: Sequence[ParsedReport], now: float) -> list[Accepted | RefusedError]:
        """Open -> open, or made where a round is full: take reports, and say of each what became of it.

        The last report of a round and its batch are one transaction: no crash leaves a round that is full and takes more.
        """
        outcomes: dict[int, Accepted | RefusedError] = {}
        with self._store.begin() as connection:
            for task_round in {report.round.batch: report.round for report in parsed}.values():
                here = {place: report for place, report in enumerate(parsed) if report.round.batch == task_round.batch}
                outcomes |= self._accepted(connection, task, task_round, here, now)
        if any(isinstance(outcome, Accepted) and outcome.arrived == outcome.wanted for outcome in outcomes.values()):
            self._store.wipe()
        return [outcomes[place] for place in range(len(parsed))]

    def close(self, task: Task, task_round: TaskRound, fewest: int, now: float) -> None:
        """Open -> made, where the round has waited long enough, has enough reports, and waits for no promised one."""
        with self._store.begin() as connection:
            state = state_of(connection, task_round.batch, to_change=True)
            early = task.patience is None or now < state.opened + task.patience
            waits = state.arrived < fewest or early or any_reservation_left(connection, task_round.batch, now)
            if state.state != RoundState.OPEN or waits:
                return
            self._make(connection, task, task_round, now)
        self._store.wipe()

    def close_with_blanks(self, task: Task, task_round: TaskRound, blanks: Sequence[SealedReport], now: float) -> None:
        """Open -> made, of a round of secret lots: reports of its lot, and blanks for all who did not come."""
        with self._store.begin() as connection:
            if state_of(connection, task_round.batch, to_change=True).state != RoundState.OPEN:
                return
            self._make(connection, task, task_round, now, blanks)
        self._store.wipe()

    def delivered(self, task: Task, round_id: str) -> None:
        """Made -> checked, or forwarded where nothing is checked: the analyzer has the batch."""
        self._leave(round_id, RoundState.MADE, RoundState.CHECKED if TRANSPORTS[task.transport].checked else RoundState.FORWARDED)

    def refuse(self, round_id: str) -> None:
        """Made -> refused: the analyzer will never take the batch."""
        self._leave(round_id, RoundState.MADE, RoundState.REFUSED)

    def release_delivered(self, round_id: str) -> None:
        """Summed -> forwarded: the analyzer has the sum."""
        self._leave(round_id, RoundState.SUMMED, RoundState.FORWARDED)

    def exclude(self, task: Task, document: Document) -> None:
        """Made or checked -> summed, or refused where too many are left out: keep the list, and write down the others' sum.

        The list again changes nothing.
        """
        exclusions = Exclusions.read(document, self._analyzer)
        with self._store.begin() as connection:
            kept = commitments.c
            query = select(rounds.c.number, rounds.c.document, rounds.c.state, kept.batch, kept.document.label("committed"))
            joined = query.join_from(rounds, commitments).where(rounds.c.id == exclusions.round)
            row = connection.execute(joined.with_for_update()).first()
            if row is None or exclusions.task != task.id or exclusions.batch != row.batch:
                raise WireError("exclusions of no batch of this shuffler's")
            if row.committed is not None:
                if row.committed != document.to_bytes():
                    raise WireError("another list of exclusions than the one that was kept: nothing is released a second time")
                return
            if row.state not in (RoundState.MADE, RoundState.CHECKED):
                raise WireError("exclusions of a round that has been given up")
            here = kept.round == exclusions.round
            connection.execute(update(commitments).where(here).values(document=document.to_bytes()))
            task_round = TaskRound.read(Document.from_bytes(row.document), task, self._analyzer)
            part = task_round.parts(task)[task.lots_of(task_round.number).index(row.number)]
            self._settle(connection, task, part, exclusions.places, document.digest)
        self._store.wipe()

    def _leave(self, round_id: str, before: RoundState, state: RoundState) -> None:
        """Forget what was to be forwarded, and all that the next state does not need."""
        with self._store.begin() as connection:
            here = (rounds.c.id == round_id) & (rounds.c.state == before)
            connection.execute(update(rounds).where(here).values(state=state, batch=None))
            if state is not RoundState.CHECKED:
                connection.execute(delete(unforwarded).where(unforwarded.c.round == round_id))
            if state is RoundState.REFUSED:
                connection.execute(delete(checking).where(checking.c.round == round_id))
        self._store.wipe()

    def _settle(self, connection: Connection, task: Task, task_round: TaskRound, places: Sequence[int], commitment: bytes) -> None:
        """Write down whose reports are left out and the sum of the others, and forget all reports."""
        query = select(checking.c.place, checking.c.client, checking.c.body).where(checking.c.round == task_round.batch)
        rows = connection.execute(query.order_by(checking.c.place)).all()
        out = set(places)
        if places and places[-1] >= len(rows):
            raise WireError("exclusions beyond the batch")
        named = [{"round": task_round.batch, "client": row.client} for row in rows if row.place in out and row.client is not None]
        if named:
            connection.execute(insert(excluded), named)
        phase = task_round.phase_of(task)
        most, left = most_excluded(task, phase), len(rows) - len(out)
        state, batch = RoundState.REFUSED, None
        if len(out) > most or left < phase.plan.honest_users:
            log.error("round %d is given up: bad reports: %d, more than the %d allowed", task_round.number, len(out), most)
            connection.execute(delete(unforwarded).where(unforwarded.c.round == task_round.batch))
        else:
            rest = SealedReport.read_alike([row.body for row in rows if row.place not in out])
            release = TRANSPORTS[task.transport].release(rest, phase.plan, commitment)
            state, batch = RoundState.SUMMED, release.to_bytes(self._key)
            if out:
                log.warning("round %d: reports left out: %d; croupier serve excluded names them", task_round.number, len(out))
        connection.execute(update(rounds).where(rounds.c.id == task_round.batch).values(state=state, batch=batch))
        connection.execute(delete(checking).where(checking.c.round == task_round.batch))

    def _accepted(
        self, connection: Connection, task: Task, task_round: TaskRound, parsed: dict[int, ParsedReport], now: float
    ) -> dict[int, Accepted | RefusedError]:
        """What becomes of reports of one round. A report hears how many there are with it; 0 where it was counted in a round that
        has ended."""
        slot, wanted, cover = task.slot(task_round), task_round.phase_of(task).plan.users, cover_slot(task_round)
        names = {report.client for report in parsed.values()}
        state = state_of(connection, task_round.batch, to_change=True)
        answered, drawn, sealed, kept = _known_before(connection, task, task_round, names, [one.seal for one in parsed.values()])
        covered = task.secret is not None and task.secret.cover
        if covered:  # everybody sends something: what is not of the round's lot is written down all the same, and thrown away later
            answered, drawn, real = (answered & drawn) | who_has(connection, cover, names), names, drawn
        arrived, new, outcomes = int(state.arrived), [], dict[int, Accepted | RefusedError]()
        over = state.state != RoundState.OPEN or (task.secret is not None and now >= task.secret.ends(state.opened))
        for place, report in parsed.items():
            client, body = report.client, report.body
            if over or (task.secret is None and arrived == wanted):
                late = client not in answered and not covered
                outcomes[place] = RefusedError(410, "the round has ended") if late else Accepted(0, wanted)
            elif kept.get(client) == body:
                outcomes[place] = Accepted(arrived, wanted)
            elif client in kept:
                outcomes[place] = RefusedError(409, "another report of this client is here; a retry sends the same bytes")
            elif client in answered:
                outcomes[place] = RefusedError(409, "this client has taken part already")
            elif client not in drawn:
                outcomes[place] = RefusedError(409, "this client's lot is not this round")
            elif report.seal in sealed:
                outcomes[place] = RefusedError(400, "an envelope that is here already; every report has new ones")
            else:
                arrived += 1
                sealed.add(report.seal)
                kept[client] = body
                answered.add(client)
                new.append(report)
                outcomes[place] = Accepted(arrived, wanted)
        if new:
            people, batch = [report.client for report in new], [task_round.batch] * len(new)
            added: dict[str, dict[str, Sequence[Any]]] = {
                "taken_part": {"slot": [cover if covered and who not in real else slot for who in people], "client": people},
                "reports": {
                    "round": batch,
                    "client": people,
                    "seal": [report.seal for report in new],
                    "body": [report.body for report in new],
                },
            }
            _TAKE.run(connection, added, round=task_round.batch, count=arrived)
            if task.patience is not None:
                forget_reservations(connection, people)
            if task.secret is None and arrived == wanted:
                self._make(connection, task, task_round, now)
        return outcomes

    def _make(
        self, connection: Connection, task: Task, task_round: TaskRound, now: float, blanks: Sequence[SealedReport] = ()
    ) -> None:
        """Write the batch of a full round, permuted and signed, in place of the reports.

        No link to people is left, except where reports are checked: there it is kept until the analyzer has said which are left
        out. With blanks it has as many reports as there are blanks: those of the round's lot, and blanks for the others. Where an
        enroller counts blanks and fewer people came than these leave places for, nobody's report is forwarded: the analyzer gets
        blanks without tokens, which end the task and say that this was so, and nothing else.
        """
        here, number, lot = reports.c.round == task_round.batch, task_round.number, task_round.lot(task)
        drawn = (lots.c.client == reports.c.client) & (lots.c.first <= lot) & (lots.c.last >= lot)
        query = select(reports.c.client, reports.c.body).join(lots, drawn).where(here)
        rows = connection.execute(query.order_by(reports.c.client)).all()
        fill, lots_plan = blanks[len(rows) :], task_round.phase_of(task).lots
        if lots_plan is not None and len(rows) < lots_plan.least_people:
            log.error("round %d ends the task: fewer people came than it counts on", number)
            rows, fill = [], [blanks[0]] * len(blanks)  # the first have no tokens
        parsed = [*SealedReport.read_alike([row.body for row in rows]), *fill]
        transport, plan = TRANSPORTS[task.transport], task_round.phase_of(task).plan
        secret = transport.shuffler_secret(self._key, task_round.key, parsed[0].round)
        made, order = transport.batch(parsed, plan, SecureRandom(), secret)
        batch = made.to_bytes(self._key)
        held: dict[str, Sequence[Any]] = {column.name: [] for column in checking.columns}
        if order is not None:  # in the order of the batch, until the analyzer has said which are left out
            people = [*[(row.client, bytes(row.body)) for row in rows], *[(None, blank.to_bytes()) for blank in fill]]
            in_order = [people[which] for which in order.tolist()]
            names, bodies = [who for who, _ in in_order], [body for _, body in in_order]
            held = {"round": [task_round.batch] * len(people), "place": list(range(len(people))), "client": names, "body": bodies}
            connection.execute(insert(commitments).values(round=task_round.batch, batch=sha256(batch)))
        _HOLD.run(connection, {"checking": held}, round=task_round.batch, made=RoundState.MADE.value, made_batch=batch)
        connection.execute(insert(unforwarded).values(round=task_round.batch, since=now))
        connection.execute(delete(reports).where(here))
        connection.execute(delete(taken_part).where(taken_part.c.slot == cover_slot(task_round)))
        if task.enroller is not None and task.secret is not None:  # none is used again
            used = blank_tokens.c.slot == task.token_slot(task_round)
            connection.execute(update(blank_tokens).where(used).values(tokens=b""))
        connection.execute(delete(reservations))


def cover_slot(task_round: TaskRound) -> str:
    """What a client has once a round whose lot is another one, where everybody sends something in every round."""
    return f"cover {task_round.id}"


def _known_before(
    connection: Connection, task: Task, task_round: TaskRound, names: Collection[str], seals: Sequence[str]
) -> tuple[set[str], set[str], set[str], dict[str, bytes]]:
    """Who of them has answered, who may, which of the seals are here, and whose reports.

    Who sends a seal again, the encapsulated key of a report, would count another user's answer twice.
    """
    first, last = _lots_asked(task, task_round)
    about = {"round": task_round.batch, "slot": task.slot(task_round), "first": first, "last": last}
    found: dict[str, dict[str, bytes]] = {kind: {} for kind in "adsr"}
    for name, body, kind in _BEFORE.rows(connection, names=list(names), seals=seals, **about):
        found[kind][name] = body
    return set(found["a"]), set(found["d"]), set(found["s"]), found["r"]


def first_round(connection: Connection, state: RoundState) -> KnownRound | None:
    """The first round in a state, if there is one."""
    found = _FIRST.first(connection, in_state=state.value)
    return None if found is None else KnownRound(*found)


def state_of(connection: Connection, round_id: str, *, to_change: bool = False) -> Progress:
    """Where a round is; its row is locked where it is going to change."""
    [row] = (_STATE_TO_CHANGE if to_change else _STATE).rows(connection, round=round_id)
    return Progress(*row)
