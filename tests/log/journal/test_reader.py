"""Reading: any range, any shape of frame, while the writer appends, rolls back or trims."""

from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Thread

import pyarrow as pa
import pytest

from motet.errors import JournalCorruptError, JournalError, JournalTrimmedError, MisuseError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.disk import RealDisk
from motet.log.journal.reader import Bounds, JournalReader
from motet.log.journal.records import INCOMPLETE
from motet.log.journal.scan import FIRST_RECORD_AT, Scan
from motet.log.journal.schema import LOG_SCHEMA
from motet.log.journal.synthetic import write_journal
from motet.protocol.wire.body import Port, fragment, pack
from tests.log.journal.factory import GROUP, A, B, C, Scribe, append_all, begun, text_of, view_of

SMALL = JournalConfig(fsync=Fsync.NEVER, segment_bytes=4096, index_bytes=1024)


def rows_of(reader: JournalReader, first: int, last: int, batch_rows: int = 20_000) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for batch in reader.read(first, last, batch_rows):
        batch.validate(full=True)
        assert batch.schema == LOG_SCHEMA
        assert 0 < batch.num_rows <= batch_rows
        rows += batch.to_pylist()
    return rows


def keyed(key: bytes, payload: bytes) -> bytes:
    return len(key).to_bytes(2, "little") + key + payload


def test_a_row_says_everything(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path, view=view_of(7, A, B))
    with journal:
        first = scribe.packed(b"one", b"two", sender=B)
        journal.append([first])
        (one, two) = rows_of(JournalReader(tmp_path), 1, 2)
    assert one | {"position": 2, "payload": b"two"} == two
    assert (one["position"], one["epoch"], one["seqno"]) == (1, 7, 1)
    assert one["view"] == "7@a000000000000001"
    assert one["sender"] == "bob#b000000000000002"
    assert (one["key"], one["payload"]) == (None, b"one")
    assert pa.scalar(one["sent_at"]).value == first.sent_at // 1000
    assert pa.scalar(one["delivered_at"]).value == first.delivered_at // 1000


def test_keys_and_payloads_are_cut_apart(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    pairs = [(b"k1", b"payload"), (b"", b"no key"), (b"key only", b""), (b"", b""), (b"k" * 300, b"p" * 500)]
    with journal:
        journal.append([scribe.packed(b"plain", b"")])
        journal.append([scribe.packed(*(keyed(*pair) for pair in pairs), port=Port.KEYED)])
        journal.append([scribe.packed(b"a state of some block", port=Port.BLOCKS)])
        journal.append([scribe.packed(b"", b"\5", b"\xff\xff key is too short", port=Port.KEYED)])
        rows = rows_of(JournalReader(tmp_path), 1, scribe.position)
    assert [(row["key"], row["payload"]) for row in rows] == [
        (None, b"plain"),
        (None, b""),
        *pairs,
        (None, b"a state of some block"),
        (None, b""),
        (None, b"\5"),
        (None, b"\xff\xff key is too short"),
    ]


def model(path: Path, config: JournalConfig) -> list[tuple[bytes | None, bytes]]:
    """Frames of all kinds from several senders, their fragments interleaved, over several segments and views."""
    journal, scribe = begun(path, config, view=view_of(1, A, B, C))
    rng, expected = Random(2), list[tuple[bytes | None, bytes]]()
    with journal:
        for round_ in range(60):
            if round_ % 20 == 19:
                scribe.enter(journal, view_of(2 + round_, A, B, C))
            messages = [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 9))]
            large = {sender: rng.randbytes(rng.randrange(200, 1500)) for sender in rng.sample([A, B, C], round_ % 3)}
            streams = set(large)
            sent = dict.fromkeys(large, 0)
            while streams:
                sender = rng.choice(sorted(streams))
                entry = scribe.fragment(large[sender], sent[sender], 300, sender)
                journal.append([entry])
                sent[sender] += 300
                if entry.count:
                    expected.append((None, large[sender]))
                    streams.remove(sender)
            journal.append([scribe.packed(*messages, sender=rng.choice([A, B, C]))])
            expected += [(None, message) for message in messages]
        journal.mark_stable(journal.position)
    return expected


@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20])
def test_any_range_in_any_batches(tmp_path: Path, segment_bytes: int) -> None:
    """Against a list in memory: fragments from before the range and from earlier segments are found."""
    config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=segment_bytes, index_bytes=1024)
    expected = model(tmp_path, config)
    rng, last = Random(3), len(expected)
    assert JournalReader(tmp_path).bounds() == Bounds(1, last, last, 61)
    for _ in range(60):
        first = rng.randint(1, last)
        end = rng.randint(first, last)
        rows = rows_of(JournalReader(tmp_path), first, end, rng.choice([1, 3, 50, 1000]))
        assert [row["position"] for row in rows] == list(range(first, end + 1))
        assert [(row["key"], row["payload"]) for row in rows] == expected[first - 1 : end]


def test_a_range_that_is_not_there(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    with journal:
        journal.append(scribe.many(10))
        reader = JournalReader(tmp_path)
        assert rows_of(reader, 5, 4) == []
        with pytest.raises(JournalError, match=r"position 11 is not in .* ends at 10"):
            rows_of(reader, 5, 11)
        with pytest.raises(MisuseError, match="positions count from 1"):
            rows_of(reader, 0, 3)
        journal.append(scribe.many(2))
        assert [row["payload"] for row in rows_of(reader, 11, 12)] == [text_of(11), text_of(12)]


def test_a_directory_that_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not there"):
        JournalReader(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="holds no journal"):
        JournalReader(tmp_path)


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    """The reader sees only whole rows, all of them in the end, and new segments as they come."""
    journal, scribe = begun(tmp_path, SMALL)
    total = 6000

    def write() -> None:
        for start in range(0, total, 50):
            append_all(journal, scribe.many(50, per_frame=7), batch=3)
            journal.mark_stable(start + 20)

    writer = Thread(target=write)
    reader, seen = JournalReader(tmp_path), 0
    writer.start()
    while seen < total:
        bounds = reader.bounds()
        assert bounds.stable <= bounds.last
        if bounds.last > seen:
            payloads = [row["payload"] for row in rows_of(reader, seen + 1, bounds.last)]
            assert payloads == [text_of(row) for row in range(seen + 1, bounds.last + 1)]
            seen = bounds.last
    writer.join()
    journal.close()


def test_a_rollback_is_seen(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path, SMALL)
    with journal:
        append_all(journal, scribe.many(300))
        reader = JournalReader(tmp_path)
        assert reader.bounds().last == 300
        stream = reader.read(1, 300, batch_rows=30)
        next(stream)
        journal.truncate(90)
        assert reader.bounds().last == 90
        with pytest.raises(JournalError, match="rolled back while it was being read"):
            list(stream)
        scribe = Scribe(90)
        append_all(journal, [scribe.packed(b"another %d" % row) for row in range(91, 201)])
        assert [row["payload"] for row in rows_of(reader, 89, 92)] == [
            *(text_of(89), text_of(90)),
            *(b"another 91", b"another 92"),
        ]
        assert reader.bounds().last == 200


def test_a_frame_replaced_by_one_of_the_same_size_is_seen(tmp_path: Path) -> None:
    journal, scribe = begun(tmp_path)
    with journal:
        journal.append([scribe.packed(b"a"), scribe.packed(b"12345678", b"1234")])
        reader = JournalReader(tmp_path)
        assert reader.bounds().last == 3
        journal.truncate(1)
        journal.append([Scribe(1).packed(b"1234567812341234")])
        assert reader.bounds().last == 2
        assert rows_of(reader, 2, 2)[0]["payload"] == b"1234567812341234"


def test_retention_takes_whole_segments_and_never_what_is_not_stable(tmp_path: Path) -> None:
    config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=4096, retention_bytes=10_000)
    journal, scribe = begun(tmp_path, config)
    with journal:
        append_all(journal, scribe.many(500))
        assert journal.first == 1
        reader = JournalReader(tmp_path)
        stream = reader.read(1, 500, batch_rows=10)
        next(stream)
        journal.mark_stable(300)
        assert journal.trim(0) > 0
        assert 1 < journal.first <= 301
        assert reader.bounds().first == journal.first
        with pytest.raises(JournalTrimmedError, match="no longer in"):
            rows_of(reader, 1, 10)
        with pytest.raises(JournalTrimmedError, match="was deleted from"):
            list(stream)
        first = journal.first
        assert rows_of(reader, first, 500)[0]["payload"] == text_of(first)
    again = Journal.open(tmp_path, GROUP, config)
    assert (again.first, again.position, again.stable) == (first, 500, 300)
    again.close()


def test_retention_by_age(tmp_path: Path) -> None:
    config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=4096, retention_ns=100_000_000)
    journal, scribe = begun(tmp_path, config)
    with journal:
        append_all(journal, scribe.many(500))
        journal.mark_stable(500)
        now = journal.segments[-1].opening.head.at
        removed = journal.trim(now)
        assert removed
        assert all(segment.opening.head.at >= now - 100_000_000 for segment in journal.segments[1:])


def test_views_and_segments(tmp_path: Path) -> None:
    journal = write_journal(tmp_path, GROUP, 5000, views=4, senders=4, config=SMALL)
    reader = JournalReader(tmp_path)
    assert [(record.view.id.number, record.position) for record in reader.views()] == [
        *((1, 0), (2, 1250), (3, 2500), (4, 3750)),
    ]
    segments = reader.segments()
    assert segments[0].first == 1
    assert segments[-1].last == 5000
    assert all(one.last + 1 == two.first for one, two in pairwise(segments))
    assert reader.owner == journal.owner
    assert reader.group == GROUP


def test_damage_in_the_middle_is_an_error_and_what_is_before_it_can_be_read(tmp_path: Path) -> None:
    write_journal(tmp_path, GROUP, 5000, frame_bytes=2000)
    (segment,) = tmp_path.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)
    reader = JournalReader(tmp_path)
    with pytest.raises(JournalCorruptError) as caught:
        reader.bounds()
    last = caught.value.position
    assert 1000 < last < 4000
    assert len(rows_of(reader, 1, last)) == last
    with pytest.raises(JournalError):
        rows_of(reader, 1, last + 1)


def test_synthetic_journals_of_two_members_agree(tmp_path: Path) -> None:
    options = {"payload_bytes": (5, 50), "keys": 4, "large_messages": 2, "frame_bytes": 3000, "views": 3}
    one = write_journal(tmp_path / "1", GROUP, 3000, member=0, **options)  # type: ignore[arg-type]
    two = write_journal(tmp_path / "2", GROUP, 3000, member=1, **options)  # type: ignore[arg-type]
    assert one.chain == two.chain
    rows = rows_of(JournalReader(tmp_path / "1"), 1, 3000)
    others = rows_of(JournalReader(tmp_path / "2"), 1, 3000)
    assert max(len(bytes(str(row["payload"]), "ascii")) for row in rows) > 5000
    assert all(row["key"] is not None for row in rows)
    assert [row | {"delivered_at": 0} for row in rows] == [row | {"delivered_at": 0} for row in others]
    assert rows[0]["delivered_at"] != others[0]["delivered_at"]


def test_a_file_that_shrinks_under_the_reader_ends_there(tmp_path: Path) -> None:
    """Seen by thinking, not by a test: a read that came back short was tried again for ever."""
    write_journal(tmp_path, GROUP, 3000, frame_bytes=1000)
    (segment,) = tmp_path.glob("*.seg")
    file = RealDisk().open(segment)
    scan = Scan(file, FIRST_RECORD_AT, window=5000)
    records = iter(scan)
    next(records)
    file.truncate(20_000)
    assert len(list(records)) < 25
    assert scan.flaw == INCOMPLETE
    file.close()


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (pack([b"one", b"two"])[:-1] + b"", 2),
        (pack([b"one", b"two"]).replace(b"\x03\0\0\0", b"\xff\xff\xff\x7f", 1), 2),
        (fragment(b"0123456789", 0, 10)[:5], 1),
        (fragment(b"0123456789", 0, 10), 2),
        (b"\x09" + bytes(20), 1),
    ],
    ids=["short payload", "long lengths", "half a fragment", "a fragment of two messages", "unknown kind"],
)
def test_a_frame_that_no_sound_writer_wrote_is_corrupt_although_its_checksum_is_right(
    tmp_path: Path, body: bytes, messages: int
) -> None:
    """Its lengths become offsets of Arrow columns, which would show whatever lies behind the body."""
    journal, scribe = begun(tmp_path)
    with journal:
        journal.append([scribe._entry(A, messages, body)])
        with pytest.raises(JournalCorruptError):
            rows_of(JournalReader(tmp_path), 1, messages)
