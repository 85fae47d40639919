"""Makes the vectors beside it, which a client in another language can be checked against: python tests/service/vectors/make.py

Written from docs/protocol.md with struct, hashlib and another implementation of HPKE (pyhpke); of croupier only the words of the
task. Signatures are Ed25519's, which are deterministic, and the keys of envelopes are fixed, which nobody else may do: so it makes
the same bytes again from the same words.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyPair

HERE = Path(__file__).parent
SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
ANALYZER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SHUFFLER = Ed25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
SEAL = X25519PrivateKey.from_private_bytes(bytes(range(96, 128)))
TRANSPORTS = {"messages": 1, "masked-sum": 2}
USERS, DIM, SEED_LABEL = 4, 2, 2**32 - 1


def made(task_text: bytes, messages: int) -> dict[str, Any]:
    """All vectors, by file name, for a task of these words whose plan has 4 users of `messages` messages in 2 coordinates."""
    task = document(1, task_text)
    words = {
        "task": json.loads(task_text)["id"],
        "id": "b1",
        "number": 1,
        "phase": 1,
        "theta": [0.5, -1.25],
        "key": SEAL.public_key().public_bytes_raw().hex(),
    }
    round_ = document(2, json.dumps(words, sort_keys=True, separators=(",", ":")).encode())
    digest = bytes.fromhex(round_["digest"])
    return {
        "documents.json": {"analyzer": keys_of(ANALYZER), "task": task, "round": round_},
        "records.json": records_vector(),
        "masks.json": [
            mask_vector(seed, dim, width)
            for seed, dim, width in ((bytes(32), 1, 6), (bytes(range(32)), 3, 19), (b"\xff" * 32, 20, 29), (bytes(32), 5, 57))
        ],
        "reports.json": {
            "round": digest.hex(),
            "recipient": keys_of(SEAL),
            "messages": messages_report(0, digest, messages),
            "masked-sum": masked_report(0, digest, messages),
        },
        "batches.json": {
            "round": digest.hex(),
            "recipient": keys_of(SEAL),
            "shuffler": keys_of(SHUFFLER),
            "users": USERS,
            "messages a coordinate": messages,
            "counts": [sum(sum(bits(user, messages)[label]) for user in range(USERS)) for label in range(DIM)],
            "messages": batch("messages", digest, messages),
            "masked-sum": batch("masked-sum", digest, messages),
            "masked-sum, one left out": left_out(words["task"], words["id"], digest, messages),
        },
    }


def records_vector() -> dict[str, Any]:
    """Words of a task about records, a file, and its rows and targets: worked out here as docs/protocol.md and files.md say."""
    columns = [
        {"name": "weight", "low": 30.0, "high": 200.0, "missing": True},
        {"name": "income", "low": 0.0, "high": 1000000.0, "scale": "log"},
        {"name": "town", "levels": ["Ulm", "Bonn", "Aachen"]},
        {"name": "age", "low": 0.0, "high": 100.0},
        {"name": "smokes", "levels": ["true", "false"]},
    ]
    towns = [f"town={level}" for level in columns[2]["levels"]]
    people = [(None, 999.0, "Bonn", 25.0, "false", "yes"), (115.0, 0.0, "Paris", 100.0, "true", "no")]
    rows = []
    for weight, income, town, age, smokes, _ in people:
        row = [0.0 if weight is None else 2 * (weight - 30) / 170 - 1, float(weight is None)]
        row += [2 * math.log(income + 1) / math.log(1_000_001) - 1]
        row += [float(town == level) for level in columns[2]["levels"]]
        row += [2 * age / 100 - 1, float(smokes == "true"), float(smokes == "false")]
        length = math.sqrt(sum(number**2 for number in row))
        rows.append([number / length for number in row] + [1.0])  # the constant comes last
    lines = [f"{smokes},{ill},{age},{town},{income},{weight or ''}" for weight, income, town, age, smokes, ill in people]
    return {
        "records": {
            "schema": {
                "version": 1,
                "rows": "unit",
                "target": {"column": "ill", "classes": ["yes", "no"]},
                "columns": columns,
            },
            "features": ["weight", "weight missing", "income", *towns, "age", "smokes=true", "smokes=false"],
            "task": "classify",
            "parameters": {"epsilon": 1.0, "interactivity": "sequential"},
        },
        "file": "\n".join(["smokes,ill,age,town,income,weight", *lines, ""]),
        "rows, to 7 digits": rows,
        "targets": [float(person[-1] == "yes") for person in people],  # no, yes: ascending
    }


def keys_of(key: Any) -> dict[str, str]:
    return {"private": key.private_bytes_raw().hex(), "public": key.public_key().public_bytes_raw().hex()}


def document(kind: int, text: bytes) -> dict[str, Any]:
    head = struct.pack("<4sBBHII", b"CRPD", 1, kind, 0, len(text), 0)
    data = head + text + ANALYZER.sign(b"croupier signature v1" + bytes([kind]) + text)
    return {"text": text.decode(), "bytes": data.hex(), "digest": hashlib.sha256(data).hexdigest()}


def mask(seed: bytes, dim: int, width: int) -> list[int]:
    key = hashlib.blake2b(bytes(8), key=seed, person=b"keystream", digest_size=32).digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes((dim * width + 7) // 8))
    return [int.from_bytes(stream, "little") >> width * label & 2**width - 1 for label in range(dim)]


def mask_vector(seed: bytes, dim: int, width: int) -> dict[str, Any]:
    numbers = [str(number) for number in mask(seed, dim, width)]  # more digits than JSON numbers keep
    return {"seed": seed.hex(), "bits a count": width, "mask": numbers}


def packed(numbers: list[int], width: int) -> bytes:
    """One long number, in whole bytes."""
    return sum(number << width * label for label, number in enumerate(numbers)).to_bytes((len(numbers) * width + 7) // 8, "little")


def bits(user: int, messages: int) -> list[list[int]]:
    return [[drawn("bit", user, label, place)[0] & 1 for place in range(messages)] for label in range(DIM)]


def drawn(*purpose: str | int) -> bytes:
    """32 bytes that are fixed and look random."""
    return hashlib.sha256(" ".join(map(str, ("croupier vector", *purpose))).encode()).digest()


def info(transport: str, digest: bytes, label: int) -> bytes:
    return b"croupier report v1 " + transport.encode() + b" " + digest + struct.pack("<I", label)


def sealed(content: bytes, about: bytes, *purpose: str | int) -> bytes:
    own = X25519PrivateKey.from_private_bytes(drawn("ephemeral", *purpose))
    pair = KEMKeyPair(*map(KEMKey.from_pyca_cryptography_key, (own, own.public_key())))
    encapsulated, context = SUITE.create_sender_context(KEMKey.from_pyca_cryptography_key(SEAL.public_key()), about, eks=pair)
    return encapsulated + context.seal(content)


def envelopes(user: int, digest: bytes, messages: int) -> list[list[bytes]]:
    """A user's sealed bits, one row a coordinate."""
    return [
        [sealed(bytes([bit]), info("messages", digest, label), user, label, place) for place, bit in enumerate(row)]
        for label, row in enumerate(bits(user, messages))
    ]


def seed_of(user: int) -> bytes:
    return drawn("seed", user)


def masked(user: int, messages: int) -> list[int]:
    width = width_of(messages)
    hidden = mask(seed_of(user), DIM, width)
    return [(sum(row) + number) % 2**width for row, number in zip(bits(user, messages), hidden, strict=True)]


def width_of(messages: int) -> int:
    """The fewest bits that hold the count of all users."""
    return (USERS * messages).bit_length()


def sealed_seed(user: int, digest: bytes) -> bytes:
    return sealed(seed_of(user), info("masked-sum", digest, SEED_LABEL), user, "seed")


def report_head(transport: str, digest: bytes, messages: int) -> bytes:
    width = width_of(messages) if transport == "masked-sum" else 0
    return struct.pack("<4sBBHII", b"CRPR", 1, TRANSPORTS[transport], width, DIM, messages) + digest


def messages_report(user: int, digest: bytes, messages: int) -> dict[str, Any]:
    body = b"".join(b"".join(row) for row in envelopes(user, digest, messages))
    return {
        "bits": ["".join(map(str, row)) for row in bits(user, messages)],
        "info": [info("messages", digest, label).hex() for label in range(DIM)],
        "bytes": (report_head("messages", digest, messages) + body).hex(),
    }


def masked_report(user: int, digest: bytes, messages: int) -> dict[str, Any]:
    body = sealed_seed(user, digest) + packed(masked(user, messages), width_of(messages))
    return {
        "counts": [sum(row) for row in bits(user, messages)],
        "seed": seed_of(user).hex(),
        "info": info("masked-sum", digest, SEED_LABEL).hex(),
        "bytes": (report_head("masked-sum", digest, messages) + body).hex(),
    }


def batch(transport: str, digest: bytes, messages: int) -> str:
    head = struct.pack("<4sBBHII", b"CRPB", 1, TRANSPORTS[transport], 0, DIM, USERS) + digest
    if transport == "messages":
        sent = [envelopes(user, digest, messages) for user in range(USERS)]
        # in the order of their bytes, which is as good as any: envelopes look random
        body = b"".join(b"".join(sorted(envelope for rows in sent for envelope in rows[label])) for label in range(DIM))
    else:
        body = b"".join(sealed_seed(user, digest) for user in in_batch(digest))
    content = head + body
    return (content + SHUFFLER.sign(b"croupier signature v1\x03" + content)).hex()


def in_batch(digest: bytes) -> list[int]:
    """Users in the order of their seeds in the batch: that of the bytes."""
    return sorted(range(USERS), key=lambda user: sealed_seed(user, digest))


def left_out(task: str, round_id: str, digest: bytes, messages: int) -> dict[str, Any]:
    """The analyzer's list of exclusions, with one place in it, and the shuffler's sum over the others."""
    whole = bytes.fromhex(batch("masked-sum", digest, messages))
    words = {"task": task, "round": round_id, "batch": hashlib.sha256(whole).hexdigest(), "places": [1]}
    exclusions = document(5, json.dumps(words, sort_keys=True, separators=(",", ":")).encode())
    rest, width = [user for place, user in enumerate(in_batch(digest)) if place != 1], width_of(messages)
    totals = [sum(masked(user, messages)[label] for user in rest) % 2**width for label in range(DIM)]
    head = struct.pack("<4sBBHII", b"CRPS", 1, TRANSPORTS["masked-sum"], width, DIM, len(rest))
    content = head + digest + bytes.fromhex(exclusions["digest"]) + packed(totals, width)
    return {
        "exclusions": exclusions,
        "release": (content + SHUFFLER.sign(b"croupier signature v1\x06" + content)).hex(),
        "counts": [sum(sum(bits(user, messages)[label]) for user in rest) for label in range(DIM)],
    }


def task_words() -> tuple[bytes, int]:
    """The text of a task, and its plan's messages a coordinate. The last digits of its figures may differ between machines."""
    import croupier as cr  # noqa: PLC0415
    from croupier.service.wire.queries import TrainingQuery  # noqa: PLC0415
    from croupier.service.wire.task import Task  # noqa: PLC0415

    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=DIM, radius=5.0))
    asked: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-2, "max_inflation": 3.0}
    chosen = cr.schedule(problem, 2 * USERS, **asked, rounds=2, method="acsa", lots="open")
    task = Task("masked-sum", 2 * USERS, TrainingQuery(problem), chosen, SHUFFLER.public_key())
    return task.document(ANALYZER).text, chosen.phases[0].plan.bits_per_coordinate


if __name__ == "__main__":
    for name, vectors in made(*task_words()).items():
        (HERE / name).write_text(json.dumps(vectors, indent=1) + "\n")
