"""Bytes on the wire: as docs/protocol.md lays them out, read strictly, and never believed."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.service.wire import transports as transport_module
from croupier.service.wire.documents import BATCH, END, HEARD, ROUND, TASK, Document, Exclusions, WireError
from croupier.service.wire.transports import Release, SealedBatch, SealedReport, release_bytes

exactly = settings(deadline=None, derandomize=True, max_examples=200)
DIM, MESSAGES, USERS = 3, 4, 5
DIGEST = hashlib.sha256(b"a round").digest()
SIGNED = b"croupier signature v1"
TRANSPORTS = {"messages": 1, "masked-sum": 2, "verified-sum": 3}
WIDTH = {"messages": 0, "masked-sum": 23, "verified-sum": 0}  # bits of a masked count
# By verified-sum a count from 0 to 4 has 3 elements, so that N = 9, c = C = 3, P = 4: docs/protocol.md. The shares are a nonce, a
# public share, 9 elements, 3 proofs of 2 c + 2 P - 1 and a blind; a part is an envelope, a nonce, a public share, 3 x (2 c + 2)
# elements and a part of the joint randomness.
SHARES, PART = 16 + 64 + 8 * (9 + 3 * 13) + 32, 112 + 16 + 64 + 8 * 3 * 8 + 32
transports = pytest.mark.parametrize("transport", TRANSPORTS)
# Interpreter's own objects around a few bytes of input: exceptions, tracebacks, views.
SOME_KILOBYTES = 16_384


def one_number(masked: list[int]) -> bytes:
    """Counts of 23 bits as one long number, in whole bytes."""
    return sum(count << 23 * place for place, count in enumerate(masked)).to_bytes(9, "little")


def some_bytes(count: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(count)


def report_of(transport: str) -> tuple[SealedReport, bytes]:
    """A report, and the bytes that the specification gives it."""
    head = struct.pack("<4sBBHII", b"CRPR", 1, TRANSPORTS[transport], WIDTH[transport], DIM, MESSAGES) + DIGEST
    if transport == "messages":
        envelopes = some_bytes(DIM * MESSAGES * 49)
        sealed = np.frombuffer(envelopes, np.uint8).reshape(DIM, MESSAGES, 49)
        return SealedReport(transport, DIGEST, DIM, MESSAGES, sealed), head + envelopes
    envelope = some_bytes(80 if transport == "masked-sum" else 112)
    beside = one_number([1, 2**22, 2**23 - 1]) if transport == "masked-sum" else some_bytes(SHARES)
    parts = np.frombuffer(envelope, np.uint8), np.frombuffer(beside, np.uint8)
    return SealedReport(transport, DIGEST, DIM, MESSAGES, *parts, WIDTH[transport]), head + envelope + beside


def batch_of(transport: str) -> tuple[SealedBatch, bytes]:
    """A batch, and the bytes that the specification gives it, all but the signature."""
    head = struct.pack("<4sBBHII", b"CRPB", 1, TRANSPORTS[transport], 0, DIM, USERS) + DIGEST
    if transport == "messages":
        envelopes = some_bytes(DIM * USERS * MESSAGES * 49)
        sealed = np.frombuffer(envelopes, np.uint8).reshape(DIM, USERS * MESSAGES, 49)
    else:
        part = 80 if transport == "masked-sum" else PART
        envelopes = some_bytes(USERS * part)
        sealed = np.frombuffer(envelopes, np.uint8).reshape(USERS, part)
    return SealedBatch(transport, DIGEST, DIM, USERS, sealed), head + envelopes


def allocated(read) -> int:
    """The most memory that a refused reading held at one time."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- documents


@pytest.mark.parametrize("kind", [TASK, ROUND])
def test_a_document_is_laid_out_as_specified(roles, kind):
    values = {"b": [1, 2.5, None], "a": "é"}
    document = Document.signed(kind, values, roles.analyzer)
    text = document.text
    signature = roles.analyzer.sign(SIGNED + struct.pack("<B", kind) + text)  # Ed25519 has one signature for a message
    expected = struct.pack("<4sBBHII", b"CRPD", 1, kind, 0, len(text), 0) + text + signature
    assert json.loads(text.decode("utf-8")) == values
    assert document.to_bytes() == expected
    assert document.digest == hashlib.sha256(expected).digest()


def test_a_document_comes_back_as_it_was_signed(roles):
    document = Document.signed(END, {"task": "ab" * 32, "rounds": 2, "reason": "x"}, roles.analyzer)
    again = Document.from_bytes(document.to_bytes())
    assert again == document
    assert again.verified(END, roles.analyzer.public_key()) == {"task": "ab" * 32, "rounds": 2, "reason": "x"}


def test_a_document_keeps_the_words_of_its_maker(roles):
    """Another maker's JSON has other spaces; nobody writes it anew."""
    text = b'{ "task" :\n "%s" }' % (b"ab" * 32)
    data = struct.pack("<4sBBHII", b"CRPD", 1, HEARD, 0, len(text), 0) + text + roles.analyzer.sign(SIGNED + b"\x12" + text)
    document = Document.from_bytes(data)
    assert document.verified(HEARD, roles.analyzer.public_key()) == {"task": "ab" * 32}
    assert document.to_bytes() == data


def test_every_flipped_bit_of_a_document_is_refused(roles):
    data, key = Document.signed(TASK, {"users": 8}, roles.analyzer).to_bytes(), roles.analyzer.public_key()
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(WireError):
            Document.from_bytes(bytes(flipped)).verified(TASK, key)


def test_a_document_of_another_key_is_refused(roles):
    document = Document.signed(TASK, {"users": 8}, roles.stranger)
    with pytest.raises(WireError, match="not the expected key's"):
        document.verified(TASK, roles.analyzer.public_key())


def test_a_document_of_one_kind_is_not_one_of_another(roles):
    document, key = Document.signed(TASK, {"users": 8}, roles.analyzer), roles.analyzer.public_key()
    with pytest.raises(WireError, match="kind 1 where kind 2"):
        document.verified(ROUND, key)
    with pytest.raises(WireError, match="signature"):
        Document(ROUND, document.text, document.signature).verified(ROUND, key)


def test_a_batch_signature_is_not_a_document_signature(roles):
    """One key that signs both: the same words, signed as a batch, are no task and no round."""
    text = b'{"users":8}'
    signature = roles.analyzer.sign(SIGNED + bytes([BATCH]) + text)
    for kind in (TASK, ROUND):
        with pytest.raises(WireError, match="signature"):
            Document(kind, text, signature).verified(kind, roles.analyzer.public_key())


@pytest.mark.parametrize("text", [b"", b"[1]", b"3", b"{", b"\xff\xfe", b'{"a":1}x', b"[" * 100_000])
def test_signed_words_that_are_no_object_are_refused(roles, text):
    document = Document(TASK, text, roles.analyzer.sign(SIGNED + bytes([TASK]) + text))
    with pytest.raises(WireError):
        Document.from_bytes(document.to_bytes()).verified(TASK, roles.analyzer.public_key())


def test_a_document_says_nothing_that_json_cannot(roles):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Document.signed(TASK, {"theta": float("nan")}, roles.analyzer)


# --- reports


@transports
def test_a_report_is_laid_out_as_specified(transport):
    report, expected = report_of(transport)
    assert report.to_bytes() == expected
    assert transport_module.TRANSPORTS[transport].report_bytes(DIM, MESSAGES, WIDTH[transport]) == len(expected)


@transports
def test_a_report_comes_back(transport):
    report, data = report_of(transport)
    again = SealedReport.from_bytes(data)
    assert (again.transport, again.round, again.messages, again.dim) == (transport, DIGEST, MESSAGES, DIM)
    assert np.array_equal(again.sealed, report.sealed)
    assert again.sealed.shape == report.sealed.shape
    assert np.array_equal(again.unsealed, report.unsealed)
    assert again.width == WIDTH[transport]
    assert again.to_bytes() == data


@transports
def test_a_report_of_any_other_length_is_refused(transport):
    _, data = report_of(transport)
    for length in range(len(data)):
        with pytest.raises(WireError):
            SealedReport.from_bytes(data[:length])
    for extra in range(256):
        with pytest.raises(WireError):
            SealedReport.from_bytes(data + bytes([extra]))


@pytest.mark.parametrize("transport", ["messages", "verified-sum"])
def test_masked_counts_are_refused_where_none_are_masked(transport):
    data = report_of(transport)[1]
    with pytest.raises(WireError, match=f"masked counts of 1 bits by {transport}"):
        SealedReport.from_bytes(data[:6] + b"\1" + data[7:])


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"CRPB", "not CRPR"),
        (4, b"\x02", "version 2"),
        (5, b"\x00", "transport 0"),
        (5, b"\x03", "masked counts of"),
        (5, b"\x04", "transport 4"),
        (6, b"\x01", "header"),
    ],
)
def test_an_unknown_header_is_refused_with_its_reason(offset, value, reason):
    data = bytearray(report_of("masked-sum")[1])
    data[offset : offset + len(value)] = value
    with pytest.raises(WireError, match=reason):
        SealedReport.from_bytes(bytes(data))


# --- batches


@transports
def test_a_batch_is_laid_out_as_specified(roles, transport):
    batch, content = batch_of(transport)
    assert batch.to_bytes(roles.shuffler) == content + roles.shuffler.sign(SIGNED + b"\x03" + content)


@transports
def test_a_batch_comes_back(roles, transport):
    batch, content = batch_of(transport)
    data = content + roles.shuffler.sign(SIGNED + b"\x03" + content)
    again = SealedBatch.from_bytes(data, MESSAGES, roles.shuffler.public_key())
    assert (again.transport, again.round, again.users, again.dim) == (transport, DIGEST, USERS, DIM)
    assert np.array_equal(again.sealed, batch.sealed)
    assert again.sealed.shape == batch.sealed.shape
    assert again.to_bytes(roles.shuffler) == data


@transports
def test_a_batch_of_any_other_length_is_refused_even_if_signed(roles, transport):
    batch, content = batch_of(transport)
    data, key = batch.to_bytes(roles.shuffler), roles.shuffler.public_key()
    for length in range(len(data)):
        with pytest.raises(WireError):
            SealedBatch.from_bytes(data[:length], MESSAGES, key)
    for other in (content[:-1], content + b"\0"):
        with pytest.raises(WireError, match="length"):
            SealedBatch.from_bytes(other + roles.shuffler.sign(SIGNED + b"\x03" + other), MESSAGES, key)
    for extra in range(256):
        with pytest.raises(WireError):
            SealedBatch.from_bytes(data + bytes([extra]), MESSAGES, key)


@transports
def test_every_flipped_bit_of_a_batch_is_refused(roles, transport):
    """All of the head and the signature; of the envelopes one bit a byte."""
    data, key = batch_of(transport)[0].to_bytes(roles.shuffler), roles.shuffler.public_key()
    ends = [*range(48), *range(len(data) - 64, len(data))]
    flips = [(byte, bit) for byte in ends for bit in range(8)] + [(byte, byte % 8) for byte in range(48, len(data) - 64)]
    for byte, bit in flips:
        flipped = bytearray(data)
        flipped[byte] ^= 1 << bit
        with pytest.raises(WireError):
            SealedBatch.from_bytes(bytes(flipped), MESSAGES, key)


def test_a_batch_of_another_key_or_kind_is_refused(roles):
    batch, content = batch_of("masked-sum")
    with pytest.raises(WireError, match="not the shuffler's"):
        SealedBatch.from_bytes(batch.to_bytes(roles.stranger), MESSAGES, roles.shuffler.public_key())
    for kind in (TASK, ROUND):
        with pytest.raises(WireError, match="not the shuffler's"):
            SealedBatch.from_bytes(
                content + roles.shuffler.sign(SIGNED + bytes([kind]) + content), MESSAGES, roles.shuffler.public_key()
            )


@pytest.mark.parametrize(("offset", "value"), [(4, 2), (5, 3), (6, 1), (7, 128)])
def test_an_unknown_header_of_a_batch_is_refused_even_if_signed(roles, offset, value):
    content = bytearray(batch_of("masked-sum")[1])
    content[offset] = value
    data = bytes(content) + roles.shuffler.sign(SIGNED + b"\x03" + bytes(content))
    with pytest.raises(WireError):
        SealedBatch.from_bytes(data, MESSAGES, roles.shuffler.public_key())


def test_a_batch_with_other_messages_than_the_plan_is_refused(roles):
    data = batch_of("messages")[0].to_bytes(roles.shuffler)
    with pytest.raises(WireError, match="length"):
        SealedBatch.from_bytes(data, MESSAGES + 1, roles.shuffler.public_key())


# --- exclusions and releases


def release_of(width: int) -> tuple[Release, bytes]:
    """A release, and the bytes that the specification gives it, all but the signature."""
    sums = [0, 2**20 + 1, 2**23 - 1]
    numbers = one_number(sums) if width == 23 else struct.pack("<3Q", *sums)
    head = struct.pack("<4sBBHII", b"CRPS", 1, 2, width, DIM, USERS) + DIGEST + bytes(range(32))
    return Release("masked-sum", DIGEST, bytes(range(32)), USERS, np.array(sums, dtype=np.uint64), width), head + numbers


@pytest.mark.parametrize("width", [23, 64])
def test_a_release_is_laid_out_as_specified_and_comes_back(roles, width):
    release, content = release_of(width)
    data = content + roles.shuffler.sign(SIGNED + b"\x06" + content)
    assert release.to_bytes(roles.shuffler) == data
    assert release_bytes(DIM, width) == len(data)
    again = Release.from_bytes(data, roles.shuffler.public_key())
    assert (again.transport, again.round, again.exclusions) == ("masked-sum", DIGEST, bytes(range(32)))
    assert (again.users, again.width, again.sums.tolist()) == (USERS, width, [0, 2**20 + 1, 2**23 - 1])


def test_every_other_length_and_every_flipped_bit_of_a_release_is_refused(roles):
    data, key = release_of(23)[0].to_bytes(roles.shuffler), roles.shuffler.public_key()
    for length in range(len(data)):
        with pytest.raises(WireError):
            Release.from_bytes(data[:length], key)
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(WireError):
            Release.from_bytes(bytes(flipped), key)
    _, content = release_of(23)
    for kind in (BATCH, TASK):
        with pytest.raises(WireError, match="the shuffler's"):
            Release.from_bytes(content + roles.shuffler.sign(SIGNED + bytes([kind]) + content), key)


def test_exclusions_come_back_as_they_were_signed(roles):
    exclusions = Exclusions("ab" * 32, "b1", "00" * 32, (0, 3, 17))
    document = exclusions.document(roles.analyzer)
    assert document.kind == 5
    assert json.loads(document.text) == {"task": "ab" * 32, "round": "b1", "batch": "00" * 32, "places": [0, 3, 17]}
    assert Exclusions.read(document, roles.analyzer.public_key()) == exclusions


@pytest.mark.parametrize("places", [None, 3, "3", [1, 1], [2, 1], [-1], [0.5], [True], ["1"], [[1]]])
def test_exclusions_that_are_no_ascending_places_are_refused(roles, places):
    values = {"task": "a", "round": "b", "batch": "c", "places": places}
    with pytest.raises(WireError, match="exclusions"):
        Exclusions.read(Document.signed(5, values, roles.analyzer), roles.analyzer.public_key())


@pytest.mark.parametrize("change", [{"task": 1}, {"more": "x"}, {"round": None}])
def test_exclusions_of_other_words_are_refused(roles, change):
    values = {"task": "a", "round": "b", "batch": "c", "places": []} | change
    with pytest.raises(WireError, match="impossible"):
        Exclusions.read(Document.signed(5, values, roles.analyzer), roles.analyzer.public_key())


# --- anything else


def valid_bytes(roles) -> list[bytes]:
    reports, batches = ([make(transport) for transport in TRANSPORTS] for make in (report_of, batch_of))
    document = Document.signed(TASK, {"users": 8}, roles.analyzer)
    return [document.to_bytes(), *(data for _, data in reports), *(batch.to_bytes(roles.shuffler) for batch, _ in batches)]


def readers(roles):
    key = roles.shuffler.public_key()
    return [
        lambda data: Document.from_bytes(data).verified(TASK, roles.analyzer.public_key()),
        SealedReport.from_bytes,
        lambda data: SealedBatch.from_bytes(data, MESSAGES, key),
    ]


def read_or_refused(read, data: bytes) -> bool:
    """Whether it was read. Anything but an answer or a WireError fails the test."""
    try:
        read(data)
    except WireError:
        return False
    return True


@exactly
@given(data=st.binary(max_size=400))
def test_random_bytes_are_refused_by_every_reader(roles, data):
    assert not any(read_or_refused(read, data) for read in readers(roles))


@exactly
@given(
    magic=st.sampled_from([b"CRPD", b"CRPR", b"CRPB"]),
    kind=st.integers(0, 3),
    first=st.integers(0, 2**32 - 1) | st.integers(0, 3),
    second=st.integers(0, 2**32 - 1) | st.integers(0, 3),
    rest=st.binary(min_size=64, max_size=400),
)
def test_headers_that_announce_anything_are_read_or_refused(roles, magic, kind, first, second, rest):
    data = struct.pack("<4sBBHII", magic, 1, kind, 0, first, second) + rest
    document, report, batch = (read_or_refused(read, data) for read in readers(roles))
    assert not document  # they are signed, and this is not
    assert not batch
    if report:  # then its length was what the header says, computed here
        assert len(rest) == 32 + (49 * first * second if kind == 1 else 80 + 8 * first)


@exactly
@given(
    which=st.integers(0, 2 * len(TRANSPORTS)),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4, unique_by=lambda edit: edit[0]),
    cut=st.integers(0, 100),
    more=st.binary(max_size=20),
)
def test_mutated_messages_are_read_or_refused(roles, which, edits, cut, more):
    original = valid_bytes(roles)[which]
    mutated = bytearray(original)
    for position, change in edits:
        mutated[position % len(mutated)] ^= change
    data = bytes(mutated[: len(mutated) - cut]) + more
    document, report, batch = (read_or_refused(read, data) for read in readers(roles))
    if data != original:
        assert not document
        assert not batch
    assert not report or len(data) == len(original)  # a report is not signed: its digest or envelopes may be others


@pytest.mark.parametrize("magic", [b"CRPD", b"CRPR", b"CRPB"])
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize(
    ("first", "second"), [(2**32 - 1, 2**32 - 1), (2**32 - 1, 1), (1, 2**32 - 1), (0, 2**32 - 1), (2**32 - 1, 0)]
)
@pytest.mark.parametrize("length", [64, 100_000])
def test_reading_never_holds_more_than_a_few_times_what_was_given(roles, magic, kind, first, second, length):
    data = struct.pack("<4sBBHII", magic, 1, kind, 0, first, second) + bytes(length)
    read = readers(roles)[[b"CRPD", b"CRPR", b"CRPB"].index(magic)]
    assert allocated(lambda: read(data)) < 3 * len(data) + SOME_KILOBYTES


@transports
def test_reading_a_valid_message_holds_little_more_than_it(roles, transport):
    dim, width = 10_000 if transport == "masked-sum" else 20, 29 if transport == "masked-sum" else 0
    lengths = transport_module.TRANSPORTS[transport].lengths(dim, 100, width)
    sealed, unsealed = np.zeros(lengths.sealed, np.uint8), np.zeros(lengths.unsealed, np.uint8)
    data = SealedReport(transport, DIGEST, dim, 100, sealed, unsealed, width).to_bytes()
    tracemalloc.start()
    try:
        report = SealedReport.from_bytes(data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.to_bytes() == data
    assert most < 2 * len(data) + SOME_KILOBYTES
