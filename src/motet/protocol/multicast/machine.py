"""Reliable multicast: the own stream and those of all other members of the view.

docs/design/multicast.md has the frames, the rules per event, and the invariants.

Invariants: one receiver per other member of the view, none for anybody else; at most `early_frames` frames of later
views are buffered; `_repaired` has at most one window of seqnos per stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from motet.errors import BacklogFullError, LeftGroupError, MisuseError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Broadcast, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.window.budget import RepairBudget
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.window.ranges import limited
from motet.protocol.wire.body import UNCOUNTED, Port
from motet.protocol.wire.frames import Highest, MulticastAck, MulticastData, MulticastXmitRequest, Purged

FRAMES = (MulticastData, MulticastAck, MulticastXmitRequest, Highest, Purged)


class Multicast:
    def __init__(self, local: Address, config: MulticastConfig, counters: Counters) -> None:
        self._local = local
        self._config = config
        self._counters = counters
        self._round_trip = config.round_trip()
        self._budget: RepairBudget[Address] = RepairBudget(config.window_bytes, config.repair_bytes, config.repair_rate)
        self._sender = MulticastSender(local, config, counters, self._round_trip, self._budget)
        self._receivers: dict[Address, MulticastReceiver] = {}
        self._members: dict[int, Address] = {local.incarnation: local}
        self._early: dict[Address, dict[int, MulticastData]] = {}
        self._repaired: dict[
            tuple[int, int], tuple[Address | None, int]
        ] = {}  # The last repair of a frame: to whom (None: all), and when.
        self._is_paused = False
        self._has_left = False

    # What the application asks for

    def send(self, messages: Sequence[bytes], now: int, port: int = Port.APP) -> list[Effect]:
        """Accept messages; they are sent as the window allows, in order. All are accepted, or none."""
        if self._has_left:
            raise LeftGroupError("this member has left the group; join again to send")
        if self._sender.waiting_bytes > self._config.backlog_bytes and port not in UNCOUNTED:
            waiting = self._sender.waiting_bytes
            raise BacklogFullError(
                f"{waiting} bytes already wait for window space; wait for Admitted before sending more"
            )
        return self._sender.send(messages, now, is_paused=self._is_paused, port=port) if messages else []

    def leave(self, now: int) -> list[Effect]:
        """Fail messages that wait for window space; frames in the window can still be repaired."""
        self._has_left = True
        return self._sender.fail(
            LeftGroupError("the member left the group before the window had space for this message")
        )

    def pause(self) -> None:
        """Deliver nothing until `resume`: the windows fill up, which applies back-pressure to the senders."""
        self._is_paused = True

    def resume(self, now: int) -> list[Effect]:
        self._is_paused = False
        effects = self._sender.pump(now, is_paused=False)
        for receiver in self._receivers.values():
            effects += receiver.settle(now, is_paused=False)
        return effects

    # Views

    def install_view(self, members: Sequence[Address], digest: Mapping[Address, int], now: int) -> list[Effect]:
        """Continue with exactly these members. Each new member needs an entry in the digest."""
        if self._local not in members:
            raise MisuseError(f"{self._local} is not in the view that it is asked to install")
        unknown = [m for m in members if m != self._local and m not in self._receivers and m not in digest]
        if unknown:
            raise MisuseError(f"the digest has no entry for {', '.join(map(str, unknown))}, new in this view; add one")
        self._members = {member.incarnation: member for member in members}
        self._merge_receivers(members, digest)
        self._budget.retain({member for member in members if member != self._local})
        self._share_sockets(len(members))
        window = self._sender.window
        joined_at = min(digest.get(self._local, window.low), window.high)
        effects = self._sender.retain(members, joined_at, now, is_paused=self._is_paused)
        self._insert_early(members)
        for receiver in self._receivers.values():
            effects += receiver.settle(now, is_paused=self._is_paused)
        return effects

    # A flush, which membership drives when a view ends

    def freeze(self) -> dict[Address, DigestEntry]:
        """Stop sending and delivering in this view. Returns, per stream, what was received without a gap."""
        own = {self._local: self._sender.freeze()}
        return own | {member: receiver.freeze() for member, receiver in self._receivers.items()}

    def fetch(self, cut: Mapping[Address, Cut[Address]], now: int) -> list[Effect]:
        """Request everything up to the cut of each stream."""
        effects: list[Effect] = []
        for sender, end in cut.items():
            if sender in self._receivers:
                self._receivers[sender].fetch(end, now)
                effects += self._receivers[sender].settle(now, is_paused=self._is_paused)
        return effects

    def is_complete(self, cut: Mapping[Address, Cut[Address]]) -> bool:
        return all(
            self._receivers[sender].window.contiguous >= end.seqno
            for sender, end in cut.items()
            if sender in self._receivers
        )

    def is_within(self, cut: Mapping[Address, Cut[Address]]) -> bool:
        """Whether no stream was delivered beyond the cut, and nothing beyond it was sent on the own stream."""
        reached = {self._local: self._sender.window.high}
        reached |= {member: receiver.window.delivered for member, receiver in self._receivers.items()}
        return all(reached[sender] <= end.seqno for sender, end in cut.items() if sender in reached)

    def thaw(self, now: int) -> list[Effect]:
        """The flush was aborted: continue in the same view."""
        for receiver in self._receivers.values():
            receiver.thaw()
        effects = self._sender.thaw(now, is_paused=self._is_paused)
        for receiver in self._receivers.values():
            effects += receiver.settle(now, is_paused=self._is_paused)
        return effects

    def end_view(self, cut: Mapping[Address, Cut[Address]]) -> list[Effect]:
        """Deliver the rest of the old view. Nothing is kept for repair, because every survivor has all of it."""
        if not self.is_complete(cut):
            raise MisuseError("frames up to the cut are missing; fetch them before the view ends")
        effects = self._sender.deliver_rest()
        for sender, receiver in self._receivers.items():
            effects += receiver.deliver_rest(cut[sender].seqno if sender in cut else receiver.window.delivered)
            receiver.discard_view()
        return effects

    def begin_view(
        self, members: Sequence[Address], digest: Mapping[Address, int], now: int, tag: int = 0
    ) -> list[Effect]:
        """Install the view after an ended one and send what waited for it. `tag` names the view in frames."""
        self._sender.restart_acks(members)
        self._sender.view = tag
        ours = {self._local: self._sender.window.high}
        effects = self.install_view(members, {**digest, **ours}, now)
        return effects + self._sender.thaw(now, is_paused=self._is_paused)

    def forget(self, address: Address) -> None:
        """The process has ended: drop what was buffered for a later view with it."""
        self._early.pop(address, None)

    def undelivered(self, cut: Mapping[Address, Cut[Address]]) -> Iterator[tuple[Address, bytes]]:
        """The bodies of each stream that are not delivered yet, up to the cut; of the own stream, up to its end."""
        ends = {self._local: self._sender.window.high} | {sender: end.seqno for sender, end in cut.items()}
        windows = {self._local: self._sender.window} | {m: r.window for m, r in self._receivers.items()}
        for sender, window in windows.items():
            for seqno in range(window.delivered + 1, min(ends.get(sender, 0), window.high) + 1):
                if (body := window[seqno]) is not None:
                    yield sender, body

    def pump(self, now: int) -> list[Effect]:
        """Send waiting bodies, plain and piggybacked ones, as far as the window allows."""
        return self._sender.pump(now, is_paused=self._is_paused)

    def digest(self) -> dict[Address, DigestEntry]:
        """What this member itself has received of every stream, including its own."""
        windows = {self._local: self._sender.window} | {m: r.window for m, r in self._receivers.items()}
        return {member: DigestEntry(w.low, w.delivered, w.high) for member, w in windows.items()}

    # Frames from the network

    def receive(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        """One batch of frames from one peer."""
        effects: list[Effect] = []
        touched: list[MulticastReceiver] = []
        for frame in frames:
            if type(frame) is MulticastData:
                self._on_data(source, frame, touched)
            else:
                effects += self._handle(source, frame, touched, now)
        for receiver in touched:
            effects += receiver.settle(now, is_paused=self._is_paused)
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects = self._sender.tick(now)
        for receiver in self._receivers.values():
            effects += receiver.tick(now)
        return effects

    def next_deadline(self) -> int | None:
        first = self._sender.due
        for receiver in self._receivers.values():
            due = receiver.next_deadline()
            if due is not None and (first is None or due < first):
                first = due
        return first

    # Queries

    @property
    def sender(self) -> MulticastSender:
        return self._sender

    def receiver(self, member: Address) -> MulticastReceiver | None:
        return self._receivers.get(member)

    @property
    def buffered_frames(self) -> int:
        """The frames in memory, bounded by members * capacity + early_frames."""
        windows = [self._sender.window] + [receiver.window for receiver in self._receivers.values()]
        return sum(window.occupied for window in windows) + sum(map(len, self._early.values()))

    # Frames

    def _handle(self, source: Address, frame: Frame, touched: list[MulticastReceiver], now: int) -> list[Effect]:
        match frame:
            case MulticastAck():
                return self._sender.ack(source, frame.seqno, now, is_paused=self._is_paused)
            case Highest():
                if frame.view == self._sender.view and (receiver := self._touch(source, touched)):
                    receiver.highest(frame)
                return []
            case MulticastXmitRequest():
                return self._on_request(source, frame, now)
            case Purged():
                return self._on_purged(source, frame)
        raise MisuseError(f"{type(frame).__name__} is not a frame of reliable multicast")

    def _on_data(self, source: Address, frame: MulticastData, touched: list[MulticastReceiver]) -> None:
        sender = source if frame.sender == source.incarnation else self._members.get(frame.sender)
        if sender is None:
            self._counters[Count.FRAME_MISPLACED] += 1
            return
        receiver = self._receivers.get(sender)
        if frame.view != self._sender.view and sender != self._local:
            self._buffer_early(sender, frame)  # It may belong to the next view, which its sender has installed already.
        elif receiver is not None:
            if receiver not in touched:
                touched.append(receiver)
            receiver.data(frame)
        elif sender == self._local:
            self._counters[Count.FRAME_DUPLICATE] += 1
        else:
            self._buffer_early(sender, frame)

    def _touch(self, source: Address, touched: list[MulticastReceiver]) -> MulticastReceiver | None:
        receiver = self._receivers.get(source)
        if receiver is None:
            self._counters[Count.FRAME_MISPLACED] += 1
        elif receiver not in touched:
            touched.append(receiver)
        return receiver

    def _on_request(self, source: Address, frame: MulticastXmitRequest, now: int) -> list[Effect]:
        """Answer a retransmission request. For purged frames say so, so that the requests end.

        A process outside the view gets no frame of it, but is told that what it misses is purged.
        """
        holder = self._holder(frame.sender)
        if holder is None:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        effects: list[Effect] = []
        low = holder.window.low
        if frame.ranges[0][0] <= low:
            self._counters[Count.PURGED_ANSWERED] += 1
            effects.append(Transmit(source, Purged(frame.sender, low)))
        if source.incarnation not in self._members:
            self._counters[Count.FRAME_MISPLACED] += 1
            return effects
        wanted = [
            repaired
            for first, last in limited(frame.ranges, self._config.request_limit)
            for seqno in range(max(first, low + 1), min(last, holder.window.high) + 1)
            if (repaired := holder.frame(seqno)) is not None
        ]
        return effects + self._repair_all(source, wanted, now)

    def _repair_all(self, source: Address, wanted: Sequence[MulticastData], now: int) -> list[Effect]:
        """Repair as far as the budget allows; the peer asks again for the rest."""
        effects: list[Effect] = []
        left = self._config.repair_bytes
        for done, frame in enumerate(wanted):
            to_all = self._goes_to_all(source, frame, now)
            if to_all is None:
                continue
            copies = len(self._members) - 1 if to_all else 1
            if left <= 0 or not self._budget.spend(source, len(frame.body), now, copies):
                self._counters[Count.REPAIR_REFUSED] += len(wanted) - done
                break
            left -= len(frame.body)
            effects.append(self._repair(source, frame, to_all, now))
        return effects

    def _holder(self, incarnation: int) -> MulticastSender | MulticastReceiver | None:
        member = self._members.get(incarnation)
        return self._sender if member == self._local else self._receivers.get(member) if member else None

    def _goes_to_all(self, source: Address, frame: MulticastData, now: int) -> bool | None:
        """Repair by unicast; by multicast if a second member asks within a round trip; None if all got it by now."""
        last_to, last_at = self._repaired.get((frame.sender, frame.seqno), (source, now))
        is_recent = now - last_at < self._round_trip.timeout_ns
        return None if is_recent and last_to is None else is_recent and last_to != source

    def _repair(self, source: Address, frame: MulticastData, to_all: bool, now: int) -> Effect:
        self._note_repair((frame.sender, frame.seqno), None if to_all else source, now)
        self._counters[Count.FRAME_RESENT] += 1
        if frame.sender == self._local.incarnation:
            self._sender.repaired()
        return Broadcast(frame) if to_all else Transmit(source, frame)

    def _note_repair(self, key: tuple[int, int], to: Address | None, now: int) -> None:
        if len(self._repaired) >= self._config.capacity * len(self._members):
            self._repaired.clear()
        self._repaired[key] = (to, now)

    def _on_purged(self, source: Address, frame: Purged) -> list[Effect]:
        sender = self._members.get(frame.sender)
        if sender is None or sender != source or sender not in self._receivers:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        return self._receivers[sender].purged(frame.low)

    # Receivers

    def _merge_receivers(self, members: Sequence[Address], digest: Mapping[Address, int]) -> None:
        """Apply a digest (JGroups note MERGE): keep the own entry; keep another window if ahead, else reset it."""
        receivers: dict[Address, MulticastReceiver] = {}
        for member in members:
            if member == self._local:
                continue
            receiver = self._receivers.get(member)
            if receiver is None:
                parts = (self._config, self._counters, self._round_trip, self._budget)
                receiver = MulticastReceiver(member, digest[member], *parts)
            elif digest.get(member, -1) > receiver.window.delivered:
                receiver.reset(digest[member])
            receiver.view = self._sender.view
            receivers[member] = receiver
        self._receivers = receivers

    def _share_sockets(self, members: int) -> None:
        """Divide the socket buffer among the senders of the view; a quarter of a share triggers an ack at once."""
        share = self._config.share(members)
        self._sender.share = share
        for receiver in self._receivers.values():
            receiver.ack_threshold = max(1, share // 4)

    def _buffer_early(self, sender: Address, frame: MulticastData) -> None:
        if sum(map(len, self._early.values())) >= self._config.early_frames:
            self._counters[Count.FRAME_EARLY_DROPPED] += 1
            return
        self._counters[Count.FRAME_EARLY] += 1
        self._early.setdefault(sender, {})[frame.seqno] = frame

    def _insert_early(self, members: Sequence[Address]) -> None:
        """Insert frames that arrived before their view was installed; drop those of any other view."""
        for member in members:
            for frame in self._early.get(member, {}).values():
                if member in self._receivers and frame.view == self._sender.view:
                    self._receivers[member].data(frame)
        self._early.clear()

    def _check(self) -> None:
        self._sender.window._check()
        assert self._sender.window.low <= self._sender.acks.minimum
        assert self._sender.admitted <= self._sender.accepted
        assert set(self._receivers) == set(self._members.values()) - {self._local}
        assert sum(map(len, self._early.values())) <= self._config.early_frames
        for receiver in self._receivers.values():
            receiver.window._check()
