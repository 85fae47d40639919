"""Signed documents, and what they share with all that travels: the header, the signature and the error."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

VERSION = 1
TASK, ROUND, BATCH, ARRIVALS, EXCLUSIONS, RELEASE, BLANKS = 1, 2, 3, 4, 5, 6, 7  # kinds of what is signed
SIGNATURE_BYTES = 64
# More than any task or round should have: nobody fills its memory because a server says so.
MOST_DOCUMENT_BYTES = 1 << 26
_DOCUMENT = struct.Struct("<4sBBHII")  # CRPD, version, kind, 0, length, 0
# More than a document should have: how deep its lists and objects are nested, and the digits of a number.
_MOST_DEPTH, _MOST_DIGITS = 100, 400


class WireError(ValueError):
    """Bytes that are not what they should be. The text is fit for whoever sent them: it holds nothing secret."""


@dataclass(frozen=True)
class Document:
    """A JSON object and its author's signature over kind and bytes, kept as they were signed."""

    kind: int  # what it is: a task, a round, a count of arrivals or a list of exclusions
    text: bytes  # the JSON text
    signature: bytes  # 64 bytes, Ed25519

    @classmethod
    def signed(cls, kind: int, values: dict[str, Any], key: Ed25519PrivateKey) -> Self:
        """Write values down as JSON, and sign them."""
        text = canonical(values)
        return cls(kind, text, key.sign(signed_bytes(kind, text)))

    def verified(self, kind: int, key: Ed25519PublicKey) -> dict[str, Any]:
        """Return what the document says, if it is of this kind, signed by this key, and as documents.json describes its kind."""
        values = self.said(kind, key)
        require_described(kind, values)
        return values

    def said(self, kind: int, key: Ed25519PublicKey) -> dict[str, Any]:
        """Return what the document says, if it is of this kind and signed by this key, whatever that is."""
        try:
            key.verify(self.signature, signed_bytes(self.kind, self.text))
        except InvalidSignature:
            raise WireError("the signature is not the expected key's") from None
        if self.kind != kind:
            raise WireError(f"a document of kind {self.kind} where kind {kind} belongs")
        return parsed(self.text)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the whole document: what reports, seals and batches are bound to."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the document as it travels."""
        return _DOCUMENT.pack(b"CRPD", VERSION, self.kind, 0, len(self.text), 0) + self.text + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a document, strictly. Its signature is not checked yet: `verified` does that."""
        kind, zero, length, also_zero = header(_DOCUMENT, b"CRPD", data)
        if zero or also_zero or len(data) != _DOCUMENT.size + length + SIGNATURE_BYTES:
            raise WireError("a document of another length than its header says")
        text = data[_DOCUMENT.size : -SIGNATURE_BYTES]
        return cls(kind, text, data[-SIGNATURE_BYTES:])


def canonical(values: dict[str, Any]) -> bytes:
    """Return values as JSON with sorted names and without spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def cleaned(text: str) -> str:
    """Return a text of somebody else as it may be shown: controls, and characters that nobody sees, become U+FFFD.

    Characters that turn the direction of writing are among them: a name with one would change how the words around it read.
    """
    printable = _description()["shapes"]["printable"]["pattern"].removesuffix("*")
    return "".join(letter if re.fullmatch(printable, letter) else "\ufffd" for letter in text)


def parsed(text: bytes) -> dict[str, Any]:
    """Parse the JSON object of a document as strictly as the TypeScript client: both refuse the same texts."""
    try:
        values = json.loads(
            text.decode(), object_pairs_hook=_once, parse_int=_digits(int), parse_float=_digits(float), parse_constant=_constant
        )
        if any(depth > _MOST_DEPTH or (isinstance(one, str) and not _encodes(one)) for depth, one in _parts(values)):
            raise ValueError
    except (ValueError, RecursionError):
        raise WireError("a document that is not JSON") from None
    if not isinstance(values, dict):
        raise WireError("a document that is not a JSON object")
    return values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise WireError("a document that has a name twice")
    return values


def _digits(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(token: str) -> Any:
        if len(token) > _MOST_DIGITS:
            raise ValueError
        return read(token)

    return checked


def _constant(_: str) -> Any:
    raise ValueError


def _encodes(text: str) -> bool:
    """Whether there is no half of a code point in it: no text that a file could hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _parts(values: Any) -> Iterator[tuple[int, Any]]:
    """Every value within another one, and how deep it lies; names, too."""
    waiting = [(0, values)]
    while waiting:
        depth, value = waiting.pop()
        yield depth, value
        if isinstance(value, dict):
            waiting += [(depth + 1, one) for pair in value.items() for one in pair]
        elif isinstance(value, list):
            waiting += [(depth + 1, one) for one in value]


@cache
def _description() -> dict[str, Any]:
    """Every field of every document: the one description that both clients check by."""
    described: dict[str, Any] = json.loads((files(__package__) / "documents.json").read_text(encoding="utf-8"))
    return described


def require_described(kind: int, values: Any) -> None:
    """Refuse values that are not as documents.json describes documents of this kind."""
    name, shape = _description()["documents"][str(kind)]
    try:
        _require(name, values, shape)
    except _UnlikeError as problem:
        raise WireError(f"a {name} that says something impossible: {problem}") from None


class _UnlikeError(Exception):
    """A value that is not of its shape."""

    def __init__(self, name: str, value: Any, allowed: str) -> None:
        shown = "missing" if value is _MISSING else f"{str(value)[:60]!r}" if isinstance(value, str) else _shown(value)
        super().__init__(f"{name} is {shown}; it must be {allowed}")


_MISSING = object()
_MOST_WHOLE = 2**53 - 1  # larger whole numbers are no floats, which is what another client has
_TYPES: dict[str, tuple[Any, ...]] = {"text": (str,), "flag": (bool,), "whole": (int,), "number": (int, float), "list": (list,)}
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "above": ("greater than", lambda value, limit: value > limit),
    "at_least": ("at least", lambda value, limit: value >= limit),
    "below": ("less than", lambda value, limit: value < limit),
    "at_most": ("at most", lambda value, limit: value <= limit),
}


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return json.dumps(value)[:60]


def _require(name: str, value: Any, shape: Any) -> None:  # noqa: PLR0912  (a table of cases)
    """Refuse a value of another shape than this one, with the name of the part that is wrong."""
    if isinstance(shape, str):
        shape = _description()["shapes"].get(shape, {"is": shape})
    match shape["is"]:
        case "null or":
            if value is not None:
                _require(name, value, shape["of"])
        case "one of":
            if not any(_is(value, one) for one in shape["of"]):
                raise _UnlikeError(name, value, "of another type")
        case "either":
            has = isinstance(value, dict) and shape["has"] in value
            _require(name, value, shape["then" if has else "else"])
        case "by":
            kind = value.get(shape["field"]) if isinstance(value, dict) else value
            if not isinstance(kind, str) or kind not in shape["kinds"]:
                raise _UnlikeError(f"{name}.{shape['field']}", kind, f"one of {', '.join(shape['kinds'])}")
            _require_fields(name, value, {shape["field"]: "text", **shape["kinds"][kind]})
        case "object":
            _require_fields(name, value, shape["fields"] | _fields(shape.get("also")))
        case "map":
            if not isinstance(value, dict):
                raise _UnlikeError(name, value, "a JSON object")
            for key, one in value.items():
                _require(f"{name}.{key[:60]}", one, shape["of"])
        case "word":
            if not isinstance(value, str) or value not in shape["words"]:
                raise _UnlikeError(name, value, f"one of {', '.join(shape['words'])}")
        case plain:
            _require_plain(name, value, plain, shape)


def _is(value: Any, shape: Any) -> bool:
    try:
        _require("", value, shape)
    except _UnlikeError:
        return False
    return True


def _fields(shape: str | None) -> dict[str, Any]:
    return {} if shape is None else dict(_description()["shapes"][shape]["fields"])


def _require_fields(name: str, value: Any, fields: dict[str, Any]) -> None:
    """An object with these fields, of which those with a question mark may be missing, and no others."""
    if not isinstance(value, dict):
        raise _UnlikeError(name, value, "a JSON object")
    known = {field.removesuffix("?"): shape for field, shape in fields.items()}
    if unknown := sorted(set(value) - set(known)):
        raise _UnlikeError(f"{name}.{unknown[0][:60]}", value[unknown[0]], "left out: this version does not know it")
    for field in fields:
        plain = field.removesuffix("?")
        if plain in value:
            _require(f"{name}.{plain}", value[plain], known[plain])
        elif plain == field:
            raise _UnlikeError(f"{name}.{plain}", _MISSING, "given")


def _require_plain(name: str, value: Any, plain: str, shape: dict[str, Any]) -> None:
    """A number, a text, a truth value or a list, within its limits."""
    wanted = {"text": "a text", "flag": "true or false", "whole": "a whole number", "number": "a finite number", "list": "a list"}
    limits = [(limit, words, within) for limit, (words, within) in _LIMITS.items() if limit in shape]
    allowed = " and ".join([wanted[plain], *(f"{words} {shape[limit]}" for limit, words, _ in limits)])
    if not isinstance(value, _TYPES[plain]) or (isinstance(value, bool) and plain != "flag"):
        raise _UnlikeError(name, value, allowed)
    if plain == "number" and not (abs(value) <= _MOST_WHOLE if isinstance(value, int) else math.isfinite(value)):
        raise _UnlikeError(name, value, allowed)
    if not all(within(value, shape[limit]) for limit, _, within in limits):
        raise _UnlikeError(name, value, allowed)
    if plain == "text" and len(value) > shape.get("longest", math.inf):
        raise _UnlikeError(name, value, f"a text of at most {shape['longest']} characters")
    if plain == "text" and not re.fullmatch(shape.get("pattern", r"[\s\S]*"), value):
        raise _UnlikeError(name, value, f"a text like {shape['pattern']}")
    if plain == "list":
        fewest, most = shape.get("fewest", 0), shape.get("most", math.inf)
        if not fewest <= len(value) <= most:
            raise _UnlikeError(name, value, f"a list of at least {fewest}" + (f" and at most {most}" if most < math.inf else ""))
        if shape["of"] == "number" and all(type(one) is float and math.isfinite(one) for one in value):
            return  # theta may have millions of entries
        for place, one in enumerate(value):
            _require(f"{name}[{place}]", one, shape["of"])


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def header(layout: struct.Struct, magic: bytes, data: bytes) -> tuple[int, int, int, int]:
    """Kind and three numbers of a header with this magic word and our version; others are refused."""
    if len(data) < layout.size + SIGNATURE_BYTES:
        raise WireError(f"{len(data)} bytes, too few for anything")
    word, version, kind, zero, first, second = layout.unpack_from(data)
    if word != magic:
        raise WireError(f"not {magic.decode()}")
    if version != VERSION:
        raise WireError(f"version {version}; this is version {VERSION}")
    return kind, zero, first, second


def signed_bytes(kind: int, data: bytes) -> bytes:
    """What is signed: no signature of one kind is one of another."""
    return b"croupier signature v1" + bytes([kind]) + data


# How a task's end and a shuffler's refusal are said: signed documents, so that nobody waits for what does not come.

# Kinds of what is signed.
END, REFUSAL, HEARD = 16, 17, 18
_MOST_REASON = 500


@dataclass(frozen=True)
class End:
    """That a task has ended."""

    task: str
    rounds: int  # how many rounds were answered
    reason: str | None = None  # why it has ended before its time; None if all rounds are done

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the end as a document that the analyzer signs."""
        reason = None if self.reason is None else cleaned(self.reason)[:_MOST_REASON]
        return Document.signed(END, {"task": self.task, "rounds": self.rounds, "reason": reason}, key)

    @classmethod
    def read(cls, document: Document, task: str, key: Ed25519PublicKey) -> Self:
        """Read the end of a task in a document of its analyzer."""
        values = _of_task(document, END, task, key)
        return cls(task, values["rounds"], values["reason"])

    def __str__(self) -> str:
        done = "its only round is done" if self.rounds == 1 else f"all {self.rounds} rounds are done"
        return f"the task has ended, {done}" if self.reason is None else self.reason


def refusal(document: Document, reason: str, analyzer: Ed25519PublicKey, key: Ed25519PrivateKey) -> Document | None:
    """Return why a shuffler does not serve a task, for its analyzer."""
    try:
        values = document.said(1, analyzer)
    except WireError:
        return None
    return Document.signed(REFUSAL, {"task": values.get("id"), "reason": cleaned(reason)[:_MOST_REASON]}, key)


def refusal_reason(document: Document, task: str, key: Ed25519PublicKey) -> str:
    """Return why the shuffler does not serve a task."""
    return str(_of_task(document, REFUSAL, task, key)["reason"])


def acknowledgement(task: str, key: Ed25519PrivateKey) -> Document:
    """Return that the shuffler knows of a task's end."""
    return Document.signed(HEARD, {"task": task}, key)


def require_heard(document: Document, task: str, key: Ed25519PublicKey) -> None:
    """Refuse anything but the shuffler's word that it knows of the task's end."""
    _of_task(document, HEARD, task, key)


def _of_task(document: Document, kind: int, task: str, key: Ed25519PublicKey) -> dict[str, Any]:
    values = document.verified(kind, key)
    if values["task"] != task:
        raise WireError("a document of another task")
    return values


# Which reports of a round are left out of its sum.


@dataclass(frozen=True)
class Exclusions:
    """The analyzer's commitment: the places in a batch whose reports are not as they should be."""

    task: str
    round: str
    batch: str  # SHA-256 of the batch that was checked, signature included; hex
    places: tuple[int, ...]  # in the batch, counted from 0, ascending

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the commitment as a document that the analyzer signs."""
        values = {"task": self.task, "round": self.round, "batch": self.batch, "places": list(self.places)}
        return Document.signed(EXCLUSIONS, values, key)

    @classmethod
    def read(cls, document: Document, key: Ed25519PublicKey) -> Self:
        """Read a commitment of this analyzer."""
        values = document.verified(EXCLUSIONS, key)
        places = values.pop("places")
        if any(after <= before for before, after in pairwise(places)):
            raise WireError("exclusions that are not ascending places")
        return cls(**values, places=tuple(places))


# Signing keys that follow each other: each new one is announced in a document that the one before has signed.
#
# Whoever knows the old key, from elsewhere than the network, so learns the new one. The new one signs the old one in turn:
# otherwise anybody could name somebody else's key as a successor, and act for it. A key announces one successor, ever: a second
# one is evidence that the key leaked, and is refused.


SUCCESSION = 19  # the kind of what is signed
# What the new key signs: these words, and the old key's 32 bytes.
_PROOF = b"croupier succession v1"
# Keys that follow each other, at most: nobody follows a chain for ever because a server says so.
MOST_SUCCESSIONS = 100


def hex_of(key: Ed25519PrivateKey | Ed25519PublicKey) -> str:
    """The public key as everybody writes it: 64 hex digits."""
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes_raw().hex()


def succession(old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Document:
    """The old key's word that the new one follows, with the new one's proof that it is of the same owner."""
    proof = new.sign(_PROOF + old.public_key().public_bytes_raw())
    return Document.signed(SUCCESSION, {"key": hex_of(new), "proof": proof.hex()}, old)


def successor(document: Document, key: str) -> str:
    """The key that follows this one, in a document that this one signed and that the other one agrees to."""
    values = document.said(SUCCESSION, Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)))
    new, proof = values.get("key"), values.get("proof")
    if set(values) != {"key", "proof"} or not isinstance(new, str) or not re.fullmatch(r"[0-9a-f]{64}", new) or new == key:
        raise WireError("a succession that names no other key")
    if not isinstance(proof, str) or not re.fullmatch(r"[0-9a-f]{128}", proof):
        raise WireError("a succession without a proof of the new key")
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(new)).verify(bytes.fromhex(proof), _PROOF + bytes.fromhex(key))
    except (InvalidSignature, ValueError):
        raise WireError("a succession whose new key has not signed the old one") from None
    return new


def followed(key: str, documents: Iterable[Document]) -> list[str]:
    """The key and all that follow it, the newest last. Documents of other keys are passed over; two successors are refused."""
    known, chain = list(documents), [key]
    while len(chain) <= MOST_SUCCESSIONS:
        following = set()
        for document in known:
            try:
                following.add(successor(document, chain[-1]))
            except WireError:
                continue  # another key's
        if len(following) > 1:
            raise WireError(f"two successors of the key {chain[-1][:8]}...: it has leaked, and neither is believed")
        if not following or following <= set(chain):
            return chain
        chain += following
    raise WireError(f"more than {MOST_SUCCESSIONS} keys that follow each other")
