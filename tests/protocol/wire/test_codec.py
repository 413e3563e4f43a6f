"""Frames to datagrams and back: every kind, its exact bytes, every reason to reject, and bytes that mean harm."""

import tracemalloc
from random import Random
from struct import pack as pack_struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MOST_COUNT
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.wire.body import pack
from motet.protocol.wire.codec import (
    DATA_OVERHEAD,
    HEADER,
    MAX_RANGES,
    DecodedDatagram,
    Reject,
    Rejection,
    decode,
    encode,
    group_id,
)
from motet.protocol.wire.frames import (
    Abort,
    AreYouAlive,
    Busy,
    Close,
    Commit,
    CutTo,
    Decision,
    Heartbeat,
    Hello,
    HelloBack,
    Highest,
    IAmAlive,
    IndirectProbe,
    Installed,
    LeaveRequest,
    MemberReport,
    MergeCancel,
    MergeCommit,
    MergeReady,
    MergeRefusal,
    MergeRequest,
    MergeResponse,
    MergeView,
    MulticastAck,
    MulticastData,
    MulticastXmitRequest,
    Nack,
    OrderAck,
    OrderData,
    OrderSeq,
    OrderSeqAck,
    Prepare,
    Prepared,
    Progress,
    ProposalRequest,
    Proposals,
    Purged,
    Ready,
    Stable,
    StateChunk,
    StateNeed,
    StateRefusal,
    StateRequest,
    Suspicion,
    Sync,
    SyncAck,
    SyncOk,
    UnicastAck,
    UnicastData,
    UnicastPurged,
    UnicastXmitRequest,
    Vouched,
)
from motet.protocol.wire.ordered import NUMBER
from tests.protocol.wire.frame_strategies import ANY_FRAME, DATAGRAMS, FRAMES, GROUP, INCARNATIONS, frame_classes

SOURCE = 0x0102030405060708
DESTINATION = 0x1112131415161718
BODY = pack([b"ab", b"c"])

# Magic, version, kind (left open), group, source, destination.
GOLDEN_HEADER = "6d54 01 {kind} 44332211 0807060504030201 1817161514131211"
GOLDEN_BODY = "01 000000 02000000 02000000 01000000 6162 63"
VIEW = View(ViewId(3, 5), (Address("a", "::1", 0x1E78, 7),), is_primary=True)
BALLOT = Ballot(2, 7)
GOLDEN_VIEW_ID = "0300000000000000 0500000000000000"
GOLDEN_BALLOT = "0200000000000000 0700000000000000"
GOLDEN_ADDRESS = "01 61 03 3a3a31 781e 0700000000000000"
GOLDEN_VIEW = f"{GOLDEN_VIEW_ID} 0100 {GOLDEN_ADDRESS} 01"
GOLDEN_QUAD = "0100000000000000 0200000000000000 0300000000000000 0400000000000000"
QUADS = ((1, 2, 3, 4),)
AGREED = ((7, 1, ((3, 0), (4, 2))),)
DECISION = Decision(QUADS, VIEW, ((7, 2),), (VIEW,), (7,), VIEW.id, 9, ((7, 2),), AGREED)
GOLDEN_AGREED = "0100 0700000000000000 0100000000000000 0200 0300000000000000 00000000 0400000000000000 02000000"
GOLDEN_DIGEST = "0100 0700000000000000 0200000000000000"
GOLDEN_LIVES = "0100 0700000000000000"
GOLDEN_NINE = "0900000000000000"
GOLDEN_LOG = f"{GOLDEN_VIEW_ID} {GOLDEN_NINE}"
GOLDEN_DECISION = (
    f"0100 {GOLDEN_QUAD} {GOLDEN_VIEW} {GOLDEN_DIGEST} 0100 {GOLDEN_VIEW} {GOLDEN_LIVES} {GOLDEN_LOG}"
    f" {GOLDEN_DIGEST} {GOLDEN_AGREED}"
)
GOLDEN_BEAT = f"{GOLDEN_NINE} 0400000000000000 0500000000000000 e803"
GOLDEN_NAMES = f"{GOLDEN_VIEW_ID} {GOLDEN_BALLOT}"
GOLDEN_RECORD = f"00 0100 {GOLDEN_VIEW}"
REPORT = MemberReport(QUADS, None, (VIEW,), VIEW.id, 9, (7,), False)
GOLDEN_REPORT = f"0100 {GOLDEN_QUAD} {GOLDEN_RECORD} {GOLDEN_LOG} {GOLDEN_LIVES} 00"
GOLDEN_HELLO = f"{GOLDEN_ADDRESS} {GOLDEN_VIEW_ID} {GOLDEN_ADDRESS} 01 0100 0900000000000000"
GOLDEN: list[tuple[Frame, str, str]] = [
    (UnicastData(7, True, 9, BODY), "01", f"07000000 01 0900000000000000 {GOLDEN_BODY}"),
    (UnicastAck(0xDDCCBBAA, 9), "02", "aabbccdd 0900000000000000"),
    (
        UnicastXmitRequest(7, ((1, 3), (5, 5))),
        "09",
        "07000000 0200 0100000000000000 0300000000000000 0500000000000000 0500000000000000",
    ),
    (Close(7), "04", "07000000"),
    (Sync(7, 0x0A0B), "05", "07000000 0b0a0000"),
    (SyncOk(7, 0x0A0B, 0x0102), "06", "07000000 0b0a0000 0201000000000000"),
    (SyncAck(7), "07", "07000000"),
    (UnicastPurged(7, 0x0102), "08", "07000000 0201000000000000"),
    (
        MulticastData(0xF1F2F3F4F5F6F7F8, 9, 4, BODY, 5),
        "10",
        f"f8f7f6f5f4f3f2f1 0900000000000000 0400000000000000 0500000000000000 {GOLDEN_BODY}",
    ),
    (MulticastAck(9), "11", "0900000000000000"),
    (
        MulticastXmitRequest(0xF1F2F3F4F5F6F7F8, ((1, 3),)),
        "15",
        "f8f7f6f5f4f3f2f1 0100 0100000000000000 0300000000000000",
    ),
    (Highest(9, 4, 5), "13", "0900000000000000 0400000000000000 0500000000000000"),
    (Purged(0xF1F2F3F4F5F6F7F8, 9), "14", "f8f7f6f5f4f3f2f1 0900000000000000"),
    (Heartbeat(VIEW.id, 9, 4, 5, 1000), "20", f"{GOLDEN_VIEW_ID} {GOLDEN_BEAT}"),
    (AreYouAlive(9, 4, 5, 1000), "21", GOLDEN_BEAT),
    (IAmAlive(VIEW.id, 9, 4, 5, 1000), "22", f"{GOLDEN_VIEW_ID} {GOLDEN_BEAT}"),
    (IndirectProbe(VIEW.id, 7), "23", f"{GOLDEN_VIEW_ID} 0700000000000000"),
    (Vouched(VIEW.id, 7), "24", f"{GOLDEN_VIEW_ID} 0700000000000000"),
    (Busy(VIEW.id), "25", GOLDEN_VIEW_ID),
    (Prepare(VIEW.id, BALLOT, VIEW.members, True), "28", f"{GOLDEN_NAMES} 0100 {GOLDEN_ADDRESS} 01"),
    (
        Prepared(VIEW.id, BALLOT, REPORT, StateNeed.LACKING, True, DECISION, AGREED),
        "29",
        f"{GOLDEN_NAMES} {GOLDEN_REPORT} 02 01 01 {GOLDEN_DECISION} {GOLDEN_AGREED}",
    ),
    (CutTo(VIEW.id, BALLOT, DECISION, None, (VIEW,)), "2a", f"{GOLDEN_NAMES} {GOLDEN_DECISION} {GOLDEN_RECORD}"),
    (Ready(VIEW.id, BALLOT, 9, ((7, 2),)), "2b", f"{GOLDEN_NAMES} {GOLDEN_NINE} {GOLDEN_DIGEST}"),
    (Commit(VIEW.id, BALLOT, DECISION), "2c", f"{GOLDEN_NAMES} {GOLDEN_DECISION}"),
    (Installed(VIEW.id), "2d", GOLDEN_VIEW_ID),
    (Abort(VIEW.id, BALLOT, True), "2e", f"{GOLDEN_NAMES} 01"),
    (Nack(VIEW.id, BALLOT, BALLOT), "2f", f"{GOLDEN_NAMES} {GOLDEN_BALLOT}"),
    (LeaveRequest(VIEW.id), "30", GOLDEN_VIEW_ID),
    (Suspicion(VIEW.id, 7, (9,)), "31", f"{GOLDEN_VIEW_ID} 0700000000000000 0100 0900000000000000"),
    (Hello(VIEW.coordinator, VIEW.summary, 9), "32", GOLDEN_HELLO),
    (HelloBack(VIEW.coordinator, VIEW.summary, 9), "33", GOLDEN_HELLO),
    (MergeRequest(BALLOT, VIEW.id, VIEW.id, 9), "34", f"{GOLDEN_BALLOT} {GOLDEN_VIEW_ID} {GOLDEN_LOG}"),
    (MergeRefusal(BALLOT, "busy"), "35", f"{GOLDEN_BALLOT} 04 62757379"),
    (
        MergeResponse(BALLOT, VIEW, BALLOT, REPORT, VIEW.members, (), (7,), (), (7,)),
        "36",
        f"{GOLDEN_BALLOT} {GOLDEN_VIEW} {GOLDEN_BALLOT} {GOLDEN_REPORT} 0100 {GOLDEN_ADDRESS} 0000"
        f" {GOLDEN_LIVES} 0000 {GOLDEN_LIVES}",
    ),
    (
        MergeView(BALLOT, VIEW.id, BALLOT, VIEW, ((7, 2),), (VIEW,), (7,), VIEW.id, None, (VIEW,)),
        "37",
        f"{GOLDEN_BALLOT} {GOLDEN_NAMES} {GOLDEN_VIEW} {GOLDEN_DIGEST} 0100 {GOLDEN_VIEW} {GOLDEN_LIVES}"
        f" {GOLDEN_VIEW_ID} {GOLDEN_RECORD}",
    ),
    (
        MergeReady(BALLOT, BALLOT, 9, ((7, 2),)),
        "38",
        f"{GOLDEN_BALLOT} {GOLDEN_BALLOT} {GOLDEN_NINE} {GOLDEN_DIGEST}",
    ),
    (MergeCommit(BALLOT, VIEW.id, 9, ((7, 2),)), "39", f"{GOLDEN_BALLOT} {GOLDEN_LOG} {GOLDEN_DIGEST}"),
    (MergeCancel(BALLOT, True), "3a", f"{GOLDEN_BALLOT} 01"),
    (StateRequest(VIEW.id, 1, 2), "3c", f"{GOLDEN_VIEW_ID} 0100000000000000 0200"),
    (StateChunk(VIEW.id, 1, True, b"ab"), "3d", f"{GOLDEN_VIEW_ID} 0100000000000000 01 02000000 6162"),
    (StateRefusal(VIEW.id, "busy"), "3e", f"{GOLDEN_VIEW_ID} 04 62757379"),
    (
        Proposals(VIEW.id, ((1, 2, 3),), 7),
        "4a",
        f"{GOLDEN_VIEW_ID} 0700000000000000 0100 0100000000000000 0200000000000000 0300000000000000",
    ),
    (ProposalRequest(VIEW.id, 1, 2), "47", f"{GOLDEN_VIEW_ID} 0100000000000000 0200000000000000"),
    (Progress(VIEW.id, 9), "48", f"{GOLDEN_VIEW_ID} 0900000000000000"),
    (Stable(VIEW.id, 9), "49", f"{GOLDEN_VIEW_ID} 0900000000000000"),
    (
        OrderData(VIEW.id, 9, 4, 5, BODY),
        "50",
        f"{GOLDEN_VIEW_ID} 0900000000000000 0400000000000000 0500000000000000 {GOLDEN_BODY}",
    ),
    (OrderAck(VIEW.id, 9, 4), "51", f"{GOLDEN_VIEW_ID} 0900000000000000 0400000000000000"),
    (
        OrderSeq(VIEW.id, 9, 4, 5, 2),
        "52",
        f"{GOLDEN_VIEW_ID} 0900000000000000 0400000000000000 0500000000000000 02000000",
    ),
    (OrderSeqAck(VIEW.id, 9), "53", f"{GOLDEN_VIEW_ID} 0900000000000000"),
]


def datagram(kind: int, fields: bytes) -> bytes:
    """A well-formed header, and whatever is said to follow it."""
    return HEADER.pack(b"mT", 1, kind, GROUP, SOURCE, DESTINATION) + fields


def test_every_kind_of_frame_is_drawn_and_has_its_golden_bytes() -> None:
    assert FRAMES.keys() == frame_classes()
    assert {type(frame) for frame, _, _ in GOLDEN} == frame_classes()


@pytest.mark.parametrize("kind", FRAMES, ids=[kind.__name__ for kind in FRAMES])
@settings(max_examples=40)
@given(data=st.data(), source=INCARNATIONS, destination=INCARNATIONS)
def test_a_frame_comes_back_as_it_was_sent(
    kind: type[Frame], data: st.DataObject, source: int, destination: int
) -> None:
    frame = data.draw(FRAMES[kind])
    assert decode(GROUP, encode(GROUP, source, destination, frame)) == DecodedDatagram(source, destination, frame)


@pytest.mark.parametrize(("frame", "kind", "fields"), GOLDEN, ids=[type(frame).__name__ for frame, _, _ in GOLDEN])
def test_the_bytes_of_each_kind_are_those_of_the_released_format(frame: Frame, kind: str, fields: str) -> None:
    golden = bytes.fromhex(GOLDEN_HEADER.format(kind=kind) + fields)
    assert encode(GROUP, SOURCE, DESTINATION, frame).hex(" ") == golden.hex(" ")
    assert decode(GROUP, golden) == DecodedDatagram(SOURCE, DESTINATION, frame)


def test_the_id_of_a_group_is_the_released_checksum_of_its_name() -> None:
    assert group_id("123456789") == 0xCBF43926  # the check value that defines CRC-32
    assert group_id("données") != group_id("donnees")


def test_a_data_frame_never_needs_more_than_the_stated_overhead() -> None:
    frames = [frame for frame, _, _ in GOLDEN if hasattr(frame, "body")]
    sizes = {type(frame): len(encode(GROUP, SOURCE, DESTINATION, frame)) for frame in frames}
    beside_piggybacks = sizes.pop(OrderData)
    assert max(sizes.values()) == DATA_OVERHEAD + len(BODY)
    assert beside_piggybacks <= DATA_OVERHEAD + NUMBER.size + len(BODY)  # space for one piggybacked number


# Why bytes are not a frame: each reason, with datagrams that have it.

TOO_LARGE = MOST_COUNT + 1
DATA_FIELDS = pack_struct("<IBQ", 7, 1, 9)
REJECTED: dict[Reject, list[bytes]] = {
    Reject.TOO_SHORT: [b"", b"m", b"mT\x01", datagram(4, b"")[:-1]],
    Reject.TOO_LONG: [datagram(1, DATA_FIELDS + bytes(MAX_DATAGRAM_BYTES)), bytes(MAX_DATAGRAM_BYTES + 1)],
    Reject.NOT_OURS: [
        bytes(HEADER.size),
        b"Mt" + datagram(4, bytes(4))[2:],
        b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    ],
    Reject.OTHER_VERSION: [b"mT\x00" + datagram(4, bytes(4))[3:], b"mT\x02" + datagram(4, bytes(4))[3:]],
    Reject.OTHER_GROUP: [encode(GROUP + 1, SOURCE, DESTINATION, Close(7)), encode(0, SOURCE, DESTINATION, Close(7))],
    Reject.UNKNOWN_KIND: [datagram(kind, bytes(40)) for kind in (0, 99, 200, 255)],
    Reject.TRUNCATED: [
        datagram(4, bytes(3)),
        datagram(1, DATA_FIELDS[:-1]),
        datagram(17, b""),
        datagram(20, bytes(15)),
        datagram(9, bytes(4 + 1)),
        *(datagram(9, bytes(4) + b"\x02\x00" + bytes(size)) for size in (0, 15, 16, 31)),
        *(datagram(74, bytes(24) + b"\x02\x00" + bytes(size)) for size in (0, 23, 24, 47)),
    ],
    Reject.TRAILING_BYTES: [
        *(datagram(4, bytes(5)), datagram(2, bytes(13)), datagram(17, bytes(9))),
        datagram(33, bytes(3 * 8 + 2 + 1)),
        *(datagram(21, bytes(8) + b"\x01\x00" + bytes(size)) for size in (17, 32)),
    ],
    Reject.BAD_FIELD: [
        encode(GROUP, SOURCE, DESTINATION, frame)
        for frame in (
            UnicastData(7, False, TOO_LARGE, BODY),
            UnicastAck(7, TOO_LARGE),
            SyncOk(7, 1, (1 << 64) - 1),
            UnicastPurged(7, TOO_LARGE),
            MulticastData(1, TOO_LARGE, 0, BODY),
            MulticastData(1, 0, TOO_LARGE, BODY),
            MulticastAck(TOO_LARGE),
            Highest(TOO_LARGE, 0),
            Highest(0, TOO_LARGE),
            Purged(1, TOO_LARGE),
        )
    ],
    Reject.BAD_RANGES: [
        encode(GROUP, SOURCE, DESTINATION, UnicastXmitRequest(7, ranges))
        for ranges in (
            (),
            ((0, 1),),
            ((3, 2),),
            ((1, 2), (2, 3)),
            ((5, 6), (1, 2)),
            ((1, TOO_LARGE),),
            tuple((2 * number + 1, 2 * number + 1) for number in range(MAX_RANGES + 1)),
        )
    ],
    Reject.BAD_BODY: [
        datagram(1, DATA_FIELDS),
        datagram(1, DATA_FIELDS + BODY[:-1]),
        datagram(1, DATA_FIELDS + BODY + b"x"),
        datagram(16, bytes(24) + b"\x03" + BODY[1:]),
    ],
}


def test_every_reason_to_reject_is_shown() -> None:
    assert REJECTED.keys() == set(Reject)


@pytest.mark.parametrize(
    ("reason", "hostile"),
    [
        pytest.param(reason, hostile, id=f"{reason.name}-{number}")
        for reason, hostiles in REJECTED.items()
        for number, hostile in enumerate(hostiles)
    ],
)
def test_bytes_that_are_no_frame_are_rejected_with_the_reason(reason: Reject, hostile: bytes) -> None:
    rejection = decode(GROUP, hostile)
    assert isinstance(rejection, Rejection)
    assert rejection.reason is reason
    assert rejection.detail


def test_as_many_ranges_as_allowed_are_accepted() -> None:
    ranges = tuple((2 * number + 1, 2 * number + 1) for number in range(MAX_RANGES))
    frame = UnicastXmitRequest(7, ranges)
    assert decode(GROUP, encode(GROUP, SOURCE, DESTINATION, frame)) == DecodedDatagram(SOURCE, DESTINATION, frame)


def test_a_datagram_of_the_largest_size_is_accepted() -> None:
    frame = UnicastData(7, True, 9, pack([bytes(MAX_DATAGRAM_BYTES - HEADER.size - len(DATA_FIELDS) - 12)]))
    largest = encode(GROUP, SOURCE, DESTINATION, frame)
    assert len(largest) == MAX_DATAGRAM_BYTES
    assert decode(GROUP, largest) == DecodedDatagram(SOURCE, DESTINATION, frame)


# Were any flag but 0 read as True, 255 datagrams would mean the same frame and re-encode to another one.
@pytest.mark.parametrize("flag", [2, 128, 255])
def test_a_flag_that_is_neither_zero_nor_one_is_rejected(flag: int) -> None:
    answer = decode(GROUP, datagram(1, pack_struct("<IBQ", 7, flag, 9) + BODY))
    assert isinstance(answer, Rejection)
    assert answer.reason is Reject.BAD_FIELD


# Bytes that mean harm


def assert_total(hostile: bytes) -> None:
    """Decoding answers, never raises; and what it accepts is exactly what somebody could have sent."""
    answer = decode(GROUP, hostile)
    if isinstance(answer, DecodedDatagram):
        assert encode(GROUP, answer.source, answer.destination, answer.frame) == hostile
    else:
        assert isinstance(answer.reason, Reject)


@settings(max_examples=300)
@given(hostile=st.binary(max_size=300))
@example(hostile=b"mT")
def test_any_bytes_are_an_envelope_or_a_rejection(hostile: bytes) -> None:
    assert_total(hostile)


@settings(max_examples=500)
@given(kind=st.sampled_from([int(kind, 16) for _, kind, _ in GOLDEN]), rest=st.binary(max_size=200))
def test_any_bytes_behind_a_good_header_are_an_envelope_or_a_rejection(kind: int, rest: bytes) -> None:
    assert_total(datagram(kind, rest))


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A valid datagram after a few accidents."""
    data = bytearray(draw(DATAGRAMS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        accident = draw(st.sampled_from(["flip", "set", "cut", "grow", "remove", "double"]))
        if accident == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif accident == "set" and at < len(data):
            data[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
        elif accident == "cut":
            del data[at:]
        elif accident == "grow":
            data[at:at] = draw(st.binary(min_size=1, max_size=20))
        elif accident == "remove":
            del data[at : at + draw(st.integers(1, 20))]
        else:
            data += data[at:]
    return bytes(data)


# Fails for the flag of UnicastData, see test_a_flag_that_is_neither_zero_nor_one_is_rejected.
@settings(max_examples=1_000)
@given(hostile=mutations())
@example(hostile=datagram(1, pack_struct("<IBQ", 7, 2, 9) + BODY))
def test_a_damaged_datagram_is_an_envelope_or_a_rejection(hostile: bytes) -> None:
    assert_total(hostile)


@settings(max_examples=50)
@given(frame=ANY_FRAME, group=st.integers(0, (1 << 32) - 1).filter(lambda group: group != GROUP))
def test_a_frame_of_another_group_is_never_accepted(frame: Frame, group: int) -> None:
    answer = decode(GROUP, encode(group, SOURCE, DESTINATION, frame))
    assert isinstance(answer, Rejection)
    assert answer.reason is Reject.OTHER_GROUP


@pytest.mark.parametrize("kind", [1, 3, 16, 18])
def test_decoding_allocates_no_more_than_a_small_multiple_of_the_datagram(kind: int) -> None:
    rng = Random(kind)
    ascending = b"".join(pack_struct("<QQ", number, number) for number in range(1, MAX_RANGES + 1))
    for tail in (rng.randbytes(60_000), ascending, pack([b""] * 15_000), pack([b"", b"a"] * 6_000)):
        for fields in (DATA_FIELDS, bytes(4), bytes(8), bytes(24)):
            hostile = datagram(kind, fields + tail)
            tracemalloc.start()
            decode(GROUP, hostile)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 20 * len(hostile)
