"""What the records up to some point say together. Writer, recovery, reader and verify all keep one of these.

Invariants: stable <= position; the chain is that of the messages up to `position`, with those begun kept aside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.log.journal.records import VIEW_FIELDS, HashChain, Head, RecordKind, SegmentState
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.wire.fields import COUNT, MalformedError, Reader

MOST_PRODUCERS = 256  # the least recently used goes


@dataclass(slots=True)
class LogState:
    group: str
    position: int = 0
    chain: HashChain = field(default_factory=HashChain)
    stable: int = 0
    epoch: ViewId = NO_VIEW
    view: View | None = None
    producers: dict[int, int] = field(default_factory=dict)  # least recently used first
    synced: int = 0  # address up to which the journal is known to be on disk
    extra: int = 0  # frames since the last message or view in which no message ends
    last_at: int = 0  # the latest clock that a record shows

    @classmethod
    def begin(cls, state: SegmentState, head: Head) -> LogState:
        """At the start of a segment."""
        return cls(
            state.group,
            head.position - 1,
            HashChain(head.chain, state.begun),
            state.stable,
            state.epoch,
            state.view,
            dict(state.producers),
            head.synced,
            last_at=head.at,
        )

    def summary(self, address: int, owner: Address | None) -> SegmentState:
        begun = tuple(sorted(self.chain.begun.items()))
        producers = tuple(self.producers.items())
        return SegmentState(self.group, address, self.stable, self.epoch, self.view, producers, begun, owner)

    @property
    def view_id(self) -> ViewId:
        return self.view.id if self.view is not None else NO_VIEW

    # What records say

    def flaw(self, head: Head, shared: bytes, body: bytes | memoryview) -> str | None:
        """Why the record cannot follow what came before; None once it is taken in."""
        if head.position != self.position + 1:
            return f"position {head.position} follows {self.position}"
        if head.kind == RecordKind.FRAME:
            fault = self._flaw_of_frame(head, shared)
        elif head.chain != self.chain.value:
            fault = "the chained hash is not that of the messages before"
        else:
            fault = self._flaw_of_other(head, bytes(body))
        if fault is None:
            self.synced = max(self.synced, head.synced)
            self.last_at = max(self.last_at, head.at)
        return fault

    def _flaw_of_frame(self, head: Head, shared: bytes) -> str | None:
        value, begun = self.chain.value, self.chain.begun.get(head.sender)
        if self.chain.take(head.sender, head.messages, shared) != head.chain:
            self.chain.value = value
            self._put_back(head.sender, begun)
            return "the chained hash does not continue: a frame is missing, doubled or another"
        self.took(head.messages)
        if head.is_tagged:
            self.tagged(head.producer, head.sequence)
        return None

    def _put_back(self, sender: int, begun: bytes | None) -> None:
        self.chain.begun.pop(sender, None)
        if begun is not None:
            self.chain.begun[sender] = begun

    def _flaw_of_other(self, head: Head, body: bytes) -> str | None:
        reader = Reader(body)
        try:
            if head.kind == RecordKind.VIEW:
                self.entered(*VIEW_FIELDS.read(reader))
            elif head.kind == RecordKind.STABLE:
                return self._flaw_of_stable(COUNT.read(reader))
            else:
                return f"a {RecordKind(head.kind).name} record has no place in a segment"
        except MalformedError as error:
            return f"a {RecordKind(head.kind).name} record that cannot be read: {error}"
        return None

    def _flaw_of_stable(self, stable: int) -> str | None:
        if stable > self.position:
            return f"{stable} is called stable, and the log ends at {self.position}"
        self.stable = max(self.stable, stable)
        return None

    # What the writer does, too

    def took(self, count: int) -> None:
        self.position += count
        self.extra = 0 if count else self.extra + 1

    def tagged(self, producer: int, sequence: int) -> None:
        self.producers.pop(producer, None)
        self.producers[producer] = sequence
        if len(self.producers) > MOST_PRODUCERS:
            del self.producers[next(iter(self.producers))]

    def entered(self, view: View, epoch: ViewId, producers: tuple[tuple[int, int], ...]) -> None:
        """Messages that were begun before are never finished: no message spans two views."""
        self.view, self.epoch, self.producers = view, epoch, dict(producers)
        self.chain.begun.clear()
        self.extra = 0

    def restarted(self, position: int, chain: bytes) -> None:
        self.position = self.stable = position
        self.chain = HashChain(chain)
        self.view, self.epoch, self.extra = None, NO_VIEW, 0
