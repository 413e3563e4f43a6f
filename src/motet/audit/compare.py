"""Compares the rows of a range whose digests differ, and classifies the difference.

The reference is the content that most members have. If two contents are equally frequent, the journal of the sender
decides, since a member delivers its own messages through the same path as all others. Without that journal the content
of the member named first is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from motet.audit.guarantees import AGREEMENT, INTEGRITY, NO_DUPLICATES, TOTAL_ORDER

# All columns but position and delivery time.
CONTENT = ("epoch", "view", "sender", "seqno", "sent_at", "key", "payload")
AROUND = 2  # neighbours shown on each side
NOTHING = "nothing"
UNSENT = "nobody sent it"
EXCHANGED, ELSEWHERE = "neighbours exchanged", "at another place"
ONLY_ORDER = (EXCHANGED, ELSEWHERE)  # differences in the order of the same messages
_PAYLOAD_BYTES_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Neighbour:
    position: int
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class RowDifference:
    member: str
    check: str
    kind: str
    position: int
    expected: str
    found: str
    neighbours: tuple[Neighbour, ...]
    reference: tuple[str, ...]  # the members that have the expected content
    view: str  # the view in which the expected message was delivered
    is_shifted: bool  # all later rows are at other positions, so later ranges add no information


def differences(rows: Mapping[str, pa.Table], owners: Mapping[str, str]) -> list[RowDifference]:
    """The first difference of each member from the reference. `owners` maps a sender to the member that it was."""
    tables = {member: _ordered(table) for member, table in rows.items()}
    groups = _groups(tables)
    reference = _reference(groups, tables, owners)
    found = []
    for group in groups:
        if group is not reference:
            found += _of_group(tables[reference[0]], tables, group, tuple(reference), owners)
    return sorted(found, key=lambda difference: (difference.position, difference.member))


def _ordered(table: pa.Table) -> pa.Table:
    """The rows as the member has them: the order of its file is the order of its deliveries."""
    table = table.select(["position", *CONTENT]).combine_chunks()
    texts = {name: table[name].cast(pa.string()) for name in ("view", "sender")}
    for name, column in texts.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _groups(tables: Mapping[str, pa.Table]) -> list[list[str]]:
    """Groups of members with the same rows, in the order in which the members are named."""
    groups: list[list[str]] = []
    for member, table in tables.items():
        for group in groups:
            if first_difference(tables[group[0]], table) is None:
                group.append(member)
                break
        else:
            groups.append([member])
    return groups


def _reference(groups: list[list[str]], tables: Mapping[str, pa.Table], owners: Mapping[str, str]) -> list[str]:
    most = max(len(group) for group in groups)
    largest = [group for group in groups if len(group) == most]
    if len(largest) > 1:
        index = first_difference(tables[largest[0][0]], tables[largest[1][0]])
        confirmed = [group for group in largest if index is not None and _has_sender(group, tables, index, owners)]
        if len(confirmed) == 1:
            return confirmed[0]
    return largest[0]


def _has_sender(group: Sequence[str], tables: Mapping[str, pa.Table], index: int, owners: Mapping[str, str]) -> bool:
    table = tables[group[0]]
    return index < table.num_rows and owners.get(table["sender"][index].as_py()) in group


def first_difference(one: pa.Table, other: pa.Table) -> int | None:
    """The index of the first row that is not the same, by content and by position; None when all are."""
    count = min(one.num_rows, other.num_rows)
    same = np.ones(count, dtype=bool)
    for name in ("position", *CONTENT):
        equal = pc.equal(one[name].slice(0, count), other[name].slice(0, count))
        if equal.null_count:  # null only equals null
            both = pc.and_(pc.is_null(one[name].slice(0, count)), pc.is_null(other[name].slice(0, count)))
            equal = pc.if_else(pc.is_null(equal), both, equal)
        same &= equal.to_numpy()
    if not same.all():
        return int(np.argmin(same))
    return None if one.num_rows == other.num_rows else count


def _of_group(
    expected: pa.Table, tables: Mapping[str, pa.Table], group: Sequence[str], reference: tuple[str, ...],
    owners: Mapping[str, str],
) -> list[RowDifference]:  # fmt: skip
    found = tables[group[0]]
    index = first_difference(expected, found)
    assert index is not None
    check, kind, is_shifted = _evaluate(expected, found, index)
    is_shifted = is_shifted and _position(expected, index) == _position(found, index)
    row = expected if index < expected.num_rows else found
    position, view = row["position"][index].as_py(), row["view"][index].as_py()
    neighbours = tuple(_neighbours(expected, found, index))
    texts = (describe(expected, index), describe(found, index))
    return [
        RowDifference(member, check, kind, position, *texts, neighbours, reference, view, is_shifted)
        for member in group
    ] + _unsent(expected, index, kind, group, reference, owners, neighbours)


def _unsent(
    expected: pa.Table, index: int, kind: str, group: Sequence[str], reference: tuple[str, ...],
    owners: Mapping[str, str], neighbours: tuple[Neighbour, ...],
) -> list[RowDifference]:  # fmt: skip
    """A finding against the others if the member that lacks a message is its sender: then the others may have forged
    it.

    The sender's journal may have lost it instead, so both findings are reported.
    """
    if kind not in ("missing", "changed") or index >= expected.num_rows:
        return []
    sender = expected["sender"][index].as_py()
    owner = owners.get(sender)
    if owner is None or owner not in group:
        return []
    position, view = expected["position"][index].as_py(), expected["view"][index].as_py()
    expected_text = f"a message that {owner} sent and so delivered itself"
    text = f"{describe(expected, index)}, which is not in {owner}'s own journal"
    mirrored = tuple(Neighbour(n.position, n.found, n.expected) for n in neighbours)
    return [
        RowDifference(member, INTEGRITY, UNSENT, position, expected_text, text, mirrored, (owner,), view, False)
        for member in reference
    ]


def _evaluate(expected: pa.Table, found: pa.Table, index: int) -> tuple[str, str, bool]:
    """(check, kind, whether all later rows are shifted), derived from positions and neighbouring rows."""
    due, here = _position(expected, index), _position(found, index)
    if here is None or (due is not None and here > due):
        return AGREEMENT, "missing", True
    if due is None:
        return INTEGRITY, "one too many", True
    if here < due:
        return NO_DUPLICATES, "position twice", False
    return _evaluate_content(expected, found, index)


def _evaluate_content(expected: pa.Table, found: pa.Table, index: int) -> tuple[str, str, bool]:
    wanted = [content(expected, index + step) for step in range(2)]
    got = [content(found, index + step) for step in range(2)]
    if got[0] == wanted[1] and got[1] == wanted[0]:
        return TOTAL_ORDER, EXCHANGED, False
    if got[1] == wanted[0]:
        is_again = index > 0 and got[0] == content(found, index - 1)
        return (NO_DUPLICATES, "delivered twice", True) if is_again else (INTEGRITY, "inserted", True)
    place = _place(expected, got[0])
    if place is not None and place > index and got[1] == content(expected, place + 1):
        return AGREEMENT, "missing", True
    if place is not None:
        return TOTAL_ORDER, ELSEWHERE, False
    assert got[0] is not None
    assert wanted[0] is not None
    if got[0][:3] != wanted[0][:3]:  # epoch, view, sender
        return AGREEMENT, "another message", False
    return INTEGRITY, "changed", False


def _place(table: pa.Table, wanted: tuple[object, ...] | None) -> int | None:
    """The index of a message in a table; None if it is absent."""
    assert wanted is not None
    row = dict(zip(CONTENT, wanted, strict=True))
    same = pc.and_(pc.equal(table["payload"], row["payload"]), pc.equal(table["seqno"], row["seqno"]))
    places = np.flatnonzero(same.fill_null(False).to_numpy())[:64].tolist()
    return next((place for place in places if content(table, place) == wanted), None)


def _position(table: pa.Table, index: int) -> int | None:
    return table["position"][index].as_py() if index < table.num_rows else None


def content(table: pa.Table, index: int) -> tuple[object, ...] | None:
    if not 0 <= index < table.num_rows:
        return None
    return tuple(table[name][index].as_py() for name in CONTENT)


def describe(table: pa.Table, index: int) -> str:
    if not 0 <= index < table.num_rows:
        return NOTHING
    row = {name: table[name][index].as_py() for name in ("position", *CONTENT)}
    key = f", key {show_bytes(row['key'])}" if row["key"] is not None else ""
    return f"{row['sender']} frame {row['seqno']} in view {row['view']}{key}: {show_bytes(row['payload'])}"


def show_bytes(data: bytes) -> str:
    shown = data[:_PAYLOAD_BYTES_SHOWN]
    text = repr(shown.decode()) if shown.isascii() and shown.decode().isprintable() else shown.hex()
    return text + (f"... ({len(data)} B)" if len(data) > len(shown) else "")


def _neighbours(expected: pa.Table, found: pa.Table, index: int) -> list[Neighbour]:
    shown = []
    for place in range(max(0, index - AROUND), index + AROUND + 1):
        table = expected if place < expected.num_rows else found
        if place < table.num_rows:
            position = table["position"][place].as_py()
            shown.append(Neighbour(position, describe(expected, place), describe(found, place)))
    return shown
