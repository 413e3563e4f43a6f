"""Overlapping digests in a merge (JGroups design note MERGE): two parts report the stream of one member.

The note asks for a warning. A machine does not log, so it makes an effect that carries both entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.window.digest import DigestEntry
from motet.protocol.wire.frames import MergeResponse


@dataclass(frozen=True, slots=True)
class ReportedEntry:
    """What one part of a merge says of a stream."""

    view: View  # of that part
    entry: DigestEntry

    def __str__(self) -> str:
        return f"{self.entry} in {self.view}"


@dataclass(frozen=True, slots=True)
class DigestsOverlapped(Effect):
    """Two parts of the merge that we lead report the stream of `member`; the higher seqno stands."""

    member: Address
    first: ReportedEntry
    second: ReportedEntry

    def __str__(self) -> str:
        return (
            f"two views of a merge both report the stream of {self.member}: {self.first} and {self.second}; an entry "
            f"is lowest, delivered and (received) seqno. One of the views still counts {self.member} in. The higher "
            f"received seqno, {self.received}, is used and nothing is lost; if this repeats, look for a link that is "
            "cut in one direction only"
        )

    @property
    def received(self) -> int:
        return max(self.first.entry.received, self.second.entry.received)


def overlaps(responses: Sequence[MergeResponse]) -> list[DigestsOverlapped]:
    """One for each entry beyond the first of a stream, beside the highest entry before it."""
    members = {member.incarnation: member for response in responses for member in response.view.members}
    highest: dict[int, ReportedEntry] = {}
    found: list[DigestsOverlapped] = []
    for response in responses:
        for sender, *seqnos in response.digest:
            reported = ReportedEntry(response.view, DigestEntry(*seqnos))
            known = highest.setdefault(sender, reported)
            if known is reported or sender not in members:
                continue
            found.append(DigestsOverlapped(members[sender], known, reported))
            if reported.entry.received > known.entry.received:
                highest[sender] = reported
    return found
