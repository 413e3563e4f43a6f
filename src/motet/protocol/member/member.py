"""One member, sans-IO: datagrams in, datagrams and delivered messages out. Driver and simulator run the same class.

The member decodes datagrams, identifies their sources, passes batches of frames to the machines, routes effects between
machines, and turns the rest into datagrams and messages. It makes no protocol decisions. Application messages are split
out of their frames here, once, at delivery.

With a `MembershipConfig` the member finds its group by itself: call `start`. Without one, the caller installs views by
`install_view`, as the simulator's oracle and some tests do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from motet.errors import MisuseError, NotPrimaryError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import BehindPurgePoint, Broadcast, Channel, Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import NOBODY, Address, Endpoint
from motet.protocol.core.record import record
from motet.protocol.core.serial import SERIAL_MODULUS
from motet.protocol.core.settling import MOST_SENDS, steps
from motet.protocol.core.view import View, ViewId
from motet.protocol.member.channel import GroupChannel
from motet.protocol.member.config import MemberConfig
from motet.protocol.member.delivery import Delivered, Delivery, Superseded
from motet.protocol.member.durable_state import DurableState
from motet.protocol.member.segmentation import Segmentation
from motet.protocol.member.snapshots import SnapshotAdapter
from motet.protocol.membership import (
    Announce,
    Contact,
    DnsName,
    IpMulticast,
    Membership,
    PrimaryRecord,
    SharedDirectory,
    StateReceived,
    ViewInstalled,
)
from motet.protocol.membership.machine import FRAMES as MEMBERSHIP_FRAMES
from motet.protocol.membership.machine import GREETINGS
from motet.protocol.multicast import Multicast
from motet.protocol.multicast.machine import FRAMES as MULTICAST_FRAMES
from motet.protocol.ordering import RolledBack
from motet.protocol.ordering.machine import FRAMES as ORDERING_FRAMES
from motet.protocol.snapshot import SnapshotId
from motet.protocol.snapshot.machine import SendMarker, SendSnapshotMessage
from motet.protocol.unicast import Unicast
from motet.protocol.unicast.machine import FRAMES as UNICAST_FRAMES
from motet.protocol.window.ranges import Ranges, limited
from motet.protocol.wire.body import UNCOUNTED, Port
from motet.protocol.wire.codec import DecodedDatagram, decode, encode, encode_parts, group_id
from motet.protocol.wire.frames import MulticastData, MulticastXmitRequest, UnicastData, UnicastXmitRequest
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.snapshot import Waiting

CARRY_BODIES = (MulticastData, UnicastData)
MOST_LOST = 64  # frames of one request that are counted as lost

Handler = Callable[[Address, Sequence[Frame], int], list[Effect]]
FrameFailed = Callable[[bytes, Exception], None]


class Timed(Protocol):
    """A machine with deadlines."""

    def tick(self, now: int) -> list[Effect]: ...

    def next_deadline(self) -> int | None: ...


@record
class Datagram(Effect):
    """Bytes to put on the network, the same for every receiver."""

    to: tuple[Address | Endpoint, ...]
    head: bytes
    tail: bytes = b""  # Sent directly after the head; separate so that a large body need not be copied.

    @property
    def data(self) -> bytes:
        return b"".join((self.head, self.tail))


@record
class Announcement(Effect):
    """Bytes to send to an IP multicast group."""

    to: IpMulticast
    data: bytes


class Member:
    def __init__(
        self,
        address: Address,
        group: str,
        config: MemberConfig,
        rng: Random,
        durable_state: DurableState | None = None,
    ) -> None:
        durable_state = durable_state or DurableState()
        self.address = address
        self._incarnation = address.incarnation
        self.counters = Counters()
        self.unicast = Unicast(address, config.unicast_sized, self.counters, rng.randrange(SERIAL_MODULUS))
        ordering = config.ordering_sized(config.ordering) if config.ordering is not None else None
        self.channel = GroupChannel(address, config.multicast_sized, ordering, self.counters)
        if self.channel.ordering is not None:
            self.channel.ordering.restore(durable_state.position, durable_state.stable, durable_state.producers)
        self.members: tuple[Address, ...] = (address,)
        self._others: tuple[Address, ...] = ()
        self._group = group_id(group)
        self._known: dict[int, Address] = {address.incarnation: address}
        self._misaddressed: list[bytes] = []  # Datagrams of this batch for another incarnation at this endpoint.
        self._delivery = Delivery(config.state_buffer_bytes, self.counters)
        self._snapshot_adapter = SnapshotAdapter.of(address, self.unicast, self.channel, config.snapshot, self.counters)
        self.snapshots = self._snapshot_adapter.machine
        self._handlers: dict[type[Frame], Handler] = {
            **dict.fromkeys(MULTICAST_FRAMES, self._receive_multicast),
            **dict.fromkeys(ORDERING_FRAMES, self._receive_order),
            **dict.fromkeys(UNICAST_FRAMES, self._receive_unicast),
        }
        self._rest: Handler = self._receive_membership  # Handles all other frames.
        self._of_the_channel: tuple[Handler, ...] = (self._receive_multicast, self._receive_order)
        self._looped: list[Frame] = []  # Frames that this member sent to itself.
        self.frame_bytes = config.frame_bytes
        self.segmentation = Segmentation(config.packet_bytes)
        # Called on errors in handling a datagram; None: they are raised.
        self.on_frame_failed: FrameFailed | None = None
        self._is_order_due = False  # Frames of the channel have arrived since the last `_put_in_order`.
        self._is_paused = False
        self._lacks_state = False  # As of the last view or state that was delivered.
        self._timed: list[Timed] = [self.unicast, self.channel, self.snapshots]
        self._membership: Membership | None = None
        if config.membership is not None:
            settings = config.membership_sized(config.membership)
            settings = replace(settings, may_bootstrap=settings.may_bootstrap and durable_state.may_bootstrap)
            kept = (durable_state.record, durable_state.epoch, durable_state.earlier_incarnations)
            self._membership = Membership(address, self.channel, settings, self.counters, rng, *kept)
            self._timed.append(self._membership)

    # What the application asks for

    def start(self, now: int) -> list[Effect]:
        """Start to look for the group. The first view has only this member; the group's view follows."""
        self.snapshots.begin_view(self.view, lacks_state=False)
        return self._perform(self.channel.start(self.view, now) + self.membership.start(now), now)

    def send(self, to: Address, messages: Sequence[bytes], now: int, *, port: int = Port.APP) -> list[Effect]:
        return self._perform(self.unicast.send(to, messages, now, port), now)

    def multicast_messages(self, messages: Sequence[bytes], now: int, *, port: int = Port.APP) -> list[Effect]:
        return self._perform(self.channel.send(messages, now, port), now)

    def multicast_ordered(
        self, messages: Sequence[bytes], now: int, *, waits_for_primary: bool = True, port: int = Port.APP
    ) -> list[Effect]:
        """Deliver messages at all members in total order.

        In a view that is not primary they wait, or raise NotPrimaryError if `waits_for_primary` is False.
        """
        if self.channel.ordering is None:
            raise MisuseError("this member has no total order: give its MemberConfig an OrderingConfig")
        if port in UNCOUNTED:
            raise MisuseError(f"port {port} is for internal messages, which are never ordered; use another port")
        if not waits_for_primary and not self.view.is_primary:
            raise NotPrimaryError(
                f"{self.view} is not primary: without a majority nothing can be ordered; wait for a primary view"
            )
        return self._perform(self.channel.send_ordered(messages, now, port), now)

    def append_tagged(self, tag: Tag, messages: Sequence[bytes], now: int, *, port: int = Port.APP) -> list[Effect]:
        """Send an idempotent append: however often and through whichever member it is sent, the log has it once."""
        return self._perform(self.channel.send_tagged(tag, messages, now, port), now)

    def persisted(self, position: int, now: int) -> list[Effect]:
        """The journal has the log up to `position` on disk."""
        self.channel.persisted(position, now)
        return []

    def keep_log(self, *, is_caught_up: bool = True) -> None:
        """A journal keeps the log. It is caught up unless a part of it is still being fetched from other members."""
        if self.channel.ordering is not None:
            self.channel.ordering.keep(is_caught_up=is_caught_up)

    def sync(self, peer: Address, now: int) -> list[Effect]:
        return self._perform(self.unicast.sync(peer, now), now)

    def close(self, peer: Address, now: int) -> list[Effect]:
        """Begin to close the unicast connections with `peer`; unacked messages are flushed first."""
        return self._perform(self.unicast.close(peer, now), now)

    def close_receiver(self, peer: Address, now: int, *, remember: bool = True) -> list[Effect]:
        """Drop the unicast receive window for `peer`; if it keeps sending, a SYNC opens a new one."""
        return self._perform(self.unicast.close_receiver(peer, now, remember=remember), now)

    def pause(self) -> None:
        """Deliver nothing until `resume`: the windows fill up, which applies back-pressure to the senders."""
        self._is_paused = True
        self.unicast.pause()
        self.channel.pause()

    def resume(self, now: int) -> list[Effect]:
        self._is_paused = False
        effects = self.unicast.resume(now)
        if not self._delivery.is_full:
            effects += self.channel.resume(now)
        return self._perform(effects, now)

    def leave(self, now: int) -> list[Effect]:
        """Leave the group and fail waiting messages. `Left` reports when the others have removed this member."""
        effects = self.snapshots.leave() + self.channel.leave(now)
        if self._membership is not None:
            effects += self._membership.leave(now)
        return self._perform(effects, now)

    def supply_state(self, view: ViewId, data: bytes, is_last: bool, now: int) -> list[Effect]:
        """The application's answer to `ProvideState`, in any number of chunks."""
        return self._perform(self.membership.supply_state(view, data, is_last, now), now)

    def require_state(self, now: int) -> list[Effect]:
        """The application needs the state: if no member has it, wait for one that does instead of starting without."""
        self.membership.require_state()
        return []

    def begin_state_anew(self, now: int) -> list[Effect]:
        """If no member has the state, declare this application's current state to be the group's state."""
        return self._perform(self.membership.begin_state_anew(now), now)

    def refuse_state(self, view: ViewId, reason: str, now: int) -> list[Effect]:
        return self._perform(self.membership.refuse_state(view, reason, now), now)

    def start_snapshot(self, now: int) -> tuple[SnapshotId, list[Effect]]:
        """Start a global snapshot; `SnapshotTaken` or `SnapshotFailed` reports the outcome."""
        snapshot, effects = self.snapshots.start(now)
        return snapshot, self._perform(effects, now)

    def supply_snapshot_state(
        self, snapshot: SnapshotId, data: bytes, now: int, unsent: Sequence[Waiting] = ()
    ) -> list[Effect]:
        """The application's answer to `RecordState`: its state at exactly that point among its deliveries.

        `unsent`: messages that the application had sent before and that the driver has not passed to the member yet.
        """
        return self._perform(self._snapshot_adapter.supply(snapshot, data, unsent, self.members, now), now)

    def refuse_snapshot_state(
        self, snapshot: SnapshotId, reason: str, now: int, *, is_transient: bool = False
    ) -> list[Effect]:
        """The application cannot supply its state, or not yet: the snapshot fails with `reason` at its initiator."""
        return self._perform(self.snapshots.refuse(snapshot, reason, now, is_transient=is_transient), now)

    # Views installed by the caller

    def learn(self, address: Address) -> None:
        """Accept frames of this address; those of unknown incarnations are dropped."""
        self._known[address.incarnation] = address

    def forget(self, address: Address, now: int) -> list[Effect]:
        """The process has ended: fail what waits for it, and drop its buffered frames."""
        if address == self.address or address in self.members:
            raise MisuseError(f"{address} is in the view; install a view without it first")
        return self._perform(self._remove_peer(address, now), now)

    def install_view(self, members: Sequence[Address], digest: Mapping[Address, int], now: int) -> list[Effect]:
        effects = self.multicast.install_view(members, digest, now)
        self._change_members(members)
        return self._perform(effects, now)

    # Inputs from the driver

    def receive(self, datagrams: Sequence[bytes], now: int, sources: Sequence[Endpoint] | None = None) -> list[Effect]:
        """Handle all datagrams of one wake-up; consecutive frames of one peer for one machine form a batch.

        `sources` has the endpoint that each datagram came from; it is needed only while `wants_sources`.
        """
        effects: list[Effect] = []
        batch: list[Frame] = []
        peer: Address = self.address
        previous: Handler = self._rest
        for datagram in datagrams:
            admitted = self._admit_safely(datagram, now)
            if admitted is None:
                continue
            source, frame = admitted
            handler = self._handlers.get(type(frame), self._rest)
            if batch and (source is not peer or handler is not previous):
                effects += self._handle(previous, peer, batch, now)
                batch = []
            peer, previous = source, handler
            batch.append(frame)
        if batch:
            effects += self._handle(previous, peer, batch, now)
        if self._misaddressed:
            effects += self._ask_who_spoke(datagrams, sources or (), now)
        return effects + self._put_in_order(now) if self._is_order_due else effects

    def _ask_who_spoke(self, datagrams: Sequence[bytes], sources: Sequence[Endpoint], now: int) -> list[Effect]:
        """Probe the sources of datagrams for an earlier incarnation: those may be replayed, but an answer is not."""
        misaddressed, self._misaddressed = {id(datagram) for datagram in self._misaddressed}, []
        if not self.wants_sources:
            return []
        pairs = zip(datagrams, sources, strict=False)
        places = dict.fromkeys(source for datagram, source in pairs if id(datagram) in misaddressed)
        return self._perform(self.membership.misaddressed(tuple(places), now), now)

    def _handle(self, handler: Handler, peer: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        if self._is_order_due and handler not in self._of_the_channel:
            before = self._put_in_order(now)
            return before + self._attempt(handler, peer, frames, now)
        return self._attempt(handler, peer, frames, now)

    def _attempt(self, handler: Handler, peer: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        """A frame that leads to an error of ours is dropped, and the member survives it: a peer must not be able to
        stop us. Where something was handed up meanwhile, it would be lost with the error, and a promise be broken:
        then the member stops. Frames may come twice, so those of a batch are tried again one by one.
        """
        before = self._handed_up()
        try:
            return self._perform(handler(peer, frames, now), now)
        except Exception as error:
            if self.on_frame_failed is None or self._handed_up() != before:
                raise
            if len(frames) > 1:
                return [effect for frame in frames for effect in self._attempt(handler, peer, (frame,), now)]
            datagram = encode(self._group, peer.incarnation, self._incarnation, frames[0])
            self._failed(datagram, error, self.on_frame_failed)
            return []

    def _failed(self, datagram: bytes, error: Exception, report: FrameFailed) -> None:
        self.counters[Count.FRAME_FAILED] += 1
        self._looped.clear()
        report(datagram, error)

    def _handed_up(self) -> tuple[int, ...]:
        """Counts that change whenever something is delivered or promised to the application."""
        counters, membership = self.counters, self._membership
        streams = (counters[Count.FRAME_DELIVERED], counters[Count.FRAME_ORDERED], counters[Count.VIEW_CHANGED])
        return (*streams, membership.handed_up) if membership is not None else streams

    def _put_in_order(self, now: int) -> list[Effect]:
        """Advance the channel once for all of its frames in a batch, before frames of other machines are handled."""
        self._is_order_due = False
        return self._perform(self.channel.advance(now), now)

    def found(self, source: DnsName | SharedDirectory, endpoints: Sequence[Endpoint], now: int) -> list[Effect]:
        """The driver's answer to `Consult`."""
        return self._perform(self.membership.found(source, endpoints, now), now)

    def not_found(self, source: DnsName | SharedDirectory, now: int) -> list[Effect]:
        """The driver's answer to `Consult` when the look-up failed."""
        return self._perform(self.membership.not_found(source, now), now)

    def tick(self, now: int) -> list[Effect]:
        """Tick the machines that are due; mostly that is one."""
        effects: list[Effect] = []
        for machine in self._timed:
            due = machine.next_deadline()
            if due is not None and due <= now:
                effects += machine.tick(now)
        return self._perform(effects, now)

    def next_deadline(self) -> int | None:
        """When `tick` must be called next. It may be too early, which is harmless, but never too late."""
        first: int | None = None
        for machine in self._timed:
            due = machine.next_deadline()
            if due is not None and (first is None or due < first):
                first = due
        return first

    def set_wall_clock(self, wall_ns: int, now: int) -> None:
        """Set the wall clock at `now`. It is used only for the timestamps of ordered frames."""
        if self.channel.ordering is not None:
            self.channel.ordering.wall_offset_ns = wall_ns - now

    # Queries

    @property
    def membership(self) -> Membership:
        if self._membership is None:
            raise MisuseError("this member has no membership: give its MemberConfig a MembershipConfig")
        return self._membership

    @property
    def wants_sources(self) -> bool:
        """Whether `receive` needs the sources of datagrams: without a primary view, to find the group from before."""
        return self._membership is not None and not self._membership.view.is_primary

    @property
    def multicast(self) -> Multicast:
        return self.channel.multicast

    @property
    def view(self) -> View:
        return self.membership.view

    @property
    def record(self) -> PrimaryRecord:
        return self.membership.record

    @property
    def durable_state(self) -> DurableState:
        """The durable state that an up-to-date journal passes to the next incarnation of this process."""
        membership, ordering = self.membership, self.channel.ordering
        position, stable = (ordering.position, ordering.stable) if ordering is not None else (0, 0)
        earlier_incarnations = (*membership.chain, self.address.incarnation)
        known = (membership.record, membership.epoch, position, stable, earlier_incarnations, self.producers)
        return DurableState(*known, may_bootstrap=membership.counts_for_bootstrap)

    @property
    def producers(self) -> tuple[tuple[int, int], ...]:
        """The highest sequence of each producer of idempotent appends in the log."""
        return self.channel.ordering.producers if self.channel.ordering is not None else ()

    @property
    def append_bytes(self) -> int:
        """The largest idempotent append: the bytes of its messages, and a length for each."""
        return self.channel.ordering.append_bytes if self.channel.ordering is not None else 0

    @property
    def is_settled(self) -> bool:
        """Whether no view change is in progress, as far as this member knows."""
        return self.membership.is_settled

    @property
    def buffered_frames(self) -> int:
        return self.unicast.buffered_frames + self.multicast.buffered_frames

    # Frames

    def _admit_safely(self, datagram: bytes, now: int) -> tuple[Address, Frame] | None:
        try:
            return self._admit(datagram, now)
        except Exception as error:
            if self.on_frame_failed is None:
                raise
            self._failed(datagram, error, self.on_frame_failed)
            return None

    def _admit(self, datagram: bytes, now: int) -> tuple[Address, Frame] | None:
        envelope = decode(self._group, datagram)
        if not isinstance(envelope, DecodedDatagram):
            self.counters[Count.DATAGRAM_REJECTED] += 1
            return None
        if envelope.source == self._incarnation:  # Frames to this member itself bypass the network.
            self.counters[Count.SOURCE_OURSELVES] += 1
            return None
        if envelope.destination != NOBODY and envelope.destination != self._incarnation:
            self.counters[Count.NOT_FOR_US] += 1
            self._misaddressed.append(datagram)
            return None
        if self._membership is not None and isinstance(envelope.frame, GREETINGS):
            return self._introduced(envelope, envelope.frame.sender)
        source = self._known.get(envelope.source)
        if source is None and self._membership is not None:
            source = self._membership.known(envelope.source)
        if source is None:
            self.counters[Count.SOURCE_UNKNOWN] += 1
            return None
        return source, envelope.frame

    def _introduced(self, envelope: DecodedDatagram, sender: Address) -> tuple[Address, Frame] | None:
        """A discovery frame contains its sender's address, which must match the source of the datagram."""
        if sender.incarnation != envelope.source or sender == self.address:
            self.counters[Count.FRAME_MISPLACED] += 1
            return None
        return sender, envelope.frame

    def _receive_multicast(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        if self.segmentation.is_watching:
            self._note_requests(source, frames)
        effects = self.channel.receive(source, frames, now)
        self._is_order_due = True
        if self._membership is not None:
            effects += self._membership.heard(source, now)
            effects += self._membership.progressed(now)
        return effects

    def _receive_order(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        if self._membership is None or self.channel.ordering is None:
            self.counters[Count.ORDER_MISMATCH] += len(frames)
            return []
        self._is_order_due = True
        return self.channel.receive_order(source, frames) + self._membership.heard(source, now)

    def _receive_unicast(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        if self.segmentation.is_watching:
            self._note_requests(source, frames)
        effects = self.unicast.receive(source, frames, now)
        return effects + self._membership.heard(source, now) if self._membership is not None else effects

    def _note_requests(self, source: Address, frames: Sequence[Frame]) -> None:
        """What is asked for again was lost; how large it is, its window knows."""
        for frame in frames:
            if isinstance(frame, MulticastXmitRequest) and frame.sender == self._incarnation:
                self._note_lost(frame.ranges, lambda seqno: self.multicast.sender.window[seqno])
            elif isinstance(frame, UnicastXmitRequest) and (connection := self.unicast.sender(source)) is not None:
                self._note_lost(frame.ranges, connection.body)

    def _note_lost(self, ranges: Ranges, body_of: Callable[[int], bytes | None]) -> None:
        for first, last in limited(ranges, MOST_LOST):
            for seqno in range(first, last + 1):
                if (body := body_of(seqno)) is not None:
                    self.segmentation.asked(len(body))

    def _receive_membership(self, source: Address, frames: Sequence[Frame], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for frame in frames:
            if self._membership is None:
                self.counters[Count.FRAME_MISPLACED] += 1
            elif isinstance(frame, GREETINGS):
                effects += self._membership.greet(frame, now)
            elif isinstance(frame, MEMBERSHIP_FRAMES):
                effects += self._membership.receive(source, frame, now)
        if self._membership is not None and self.channel.ordering is not None:
            self.channel.ordering.allow_fast_path(self._membership.is_received_by_all(now))
        return effects

    # Effects of the machines: routed to other machines, or turned into datagrams and messages

    def _perform(self, effects: list[Effect], now: int) -> list[Effect]:
        """Perform all effects of one input. Only then does a snapshot know how far every channel was delivered."""
        made = self._made(effects, now) if effects else []
        if self._looped:
            made += self._receive_own(now)
        return made + self._made(self._snapshot_adapter.settle(now), now) if self.snapshots.is_recording else made

    def _receive_own(self, now: int) -> list[Effect]:
        """Handle unicast frames to this member itself like all others, without the network."""
        made: list[Effect] = []
        for _ in steps("what this member sends to itself", MOST_SENDS):
            if not self._looped:
                break
            frames, self._looped = self._looped, []
            made += self._made(self.unicast.receive(self.address, frames, now), now)
        return made

    def _made(self, effects: list[Effect], now: int) -> list[Effect]:
        made: list[Effect] = []
        for effect in effects:
            if type(effect) is Transmit and effect.to.incarnation == self._incarnation:
                # Only a forged cut can make a member request frames of any other kind from itself.
                if isinstance(effect.frame, UNICAST_FRAMES):
                    self._looped.append(effect.frame)
            elif type(effect) is Transmit:
                if type(effect.frame) in CARRY_BODIES:
                    self.segmentation.sent(len(effect.frame.body), 1)  # type: ignore[attr-defined]
                made.append(Datagram((effect.to,), *self._parts(effect.to.incarnation, effect.frame)))
            elif type(effect) is Broadcast:
                made += self._broadcast(effect.frame, now)
            elif type(effect) is Deliver:
                made += self._deliver(effect, now)
            elif type(effect) is Delivered:
                made.append(effect)
            else:
                made += self._make_concrete(effect, now)
        return made

    def _make_concrete(self, effect: Effect, now: int) -> list[Effect]:
        """Effects outside the hot path."""
        match effect:
            case Contact():
                return [Datagram((effect.to,), *self._parts(NOBODY, effect.frame))]
            case Announce():
                return [Announcement(effect.source, b"".join(self._parts(NOBODY, effect.frame)))]
            case ViewInstalled():
                return self._enter_view(effect, now)
            case RolledBack() if self._membership is not None:
                self._membership.rolled_back()
            case StateReceived():
                return [effect, *(self._deliver_buffered(now) if effect.is_last else [])]
            case BehindPurgePoint() if self._membership is not None:
                return [effect, *self._made(self._membership.behind_purge_point(effect.sender, now), now)]
            case SendMarker():
                return self._made(self._snapshot_adapter.mark(effect, self.members, now), now)
            case SendSnapshotMessage():
                return self._made(self._snapshot_adapter.send_to(effect, now), now)
        return [effect]

    def _parts(self, destination: int, frame: Frame) -> tuple[bytes, bytes]:
        return encode_parts(self._group, self._incarnation, destination, frame)

    def _broadcast(self, frame: Frame, now: int) -> list[Effect]:
        if not self._others:
            return []
        if self._membership is not None:
            self._membership.spoke(now)
        if type(frame) is MulticastData:
            self.segmentation.sent(len(frame.body), len(self._others))
        return [Datagram(self._others, *self._parts(NOBODY, frame))]

    def _deliver(self, effect: Deliver, now: int) -> list[Effect]:
        is_buffering = self._lacks_state and effect.channel is not Channel.UNICAST
        delivered = self._delivery.take(effect, is_buffering=is_buffering)
        if is_buffering and self._delivery.is_full:
            self.channel.pause()
        return self._made(self._snapshot_adapter.hand_up(delivered, now), now) if delivered else []

    def _hand_up(self, delivered: Sequence[Delivered], now: int) -> list[Effect]:
        return self._made(self._snapshot_adapter.hand_up(delivered, now), now)

    def _deliver_buffered(self, now: int) -> list[Effect]:
        """The state has arrived: deliver what was buffered during the transfer."""
        self._lacks_state, was_full = False, self._delivery.is_full
        self.snapshots.has_state()
        released = self._hand_up(self._delivery.take_buffered(), now)
        return released + (self._made(self.channel.resume(now), now) if was_full and not self._is_paused else [])

    # Views

    def _enter_view(self, installed: ViewInstalled, now: int) -> list[Effect]:
        """Install a view, and close the unicast connections of members that are no longer in it."""
        gone = [member for member in self.members if member not in installed.view]
        self._delivery.retain((), Channel.MULTICAST, Channel.TOTAL)  # No message spans two views.
        was_full = self._delivery.is_full
        kept = self._end_buffering(installed, now)
        kept += self.snapshots.begin_view(installed.view, lacks_state=self._lacks_state)
        self._change_members(installed.view.members)
        effects = [effect for member in gone for effect in self._remove_peer(member, now)]
        effects += self.channel.resume(now) if was_full and not self._is_paused else []
        return [*kept, installed, *self._made(effects, now)]

    def _end_buffering(self, installed: ViewInstalled, now: int) -> list[Effect]:
        """Drop buffered deliveries, which the new view's state contains; without a state transfer, deliver them."""
        self._lacks_state = self.address.incarnation in installed.lacking
        kept = self._delivery.take_buffered()
        if not self._lacks_state:
            return self._hand_up(kept, now)
        ours = [batch for batch in kept if batch.channel is Channel.TOTAL and batch.sender == self.address]
        return [Superseded(batch.position or 0, len(batch.messages)) for batch in ours]

    def _change_members(self, members: Sequence[Address]) -> None:
        self.members = tuple(members)
        self._others = tuple(member for member in members if member != self.address)
        for address in members:
            self.learn(address)
        self._delivery.retain(members, Channel.MULTICAST, Channel.TOTAL)

    def _remove_peer(self, address: Address, now: int) -> list[Effect]:
        self._known.pop(address.incarnation, None)
        self.multicast.forget(address)
        effects = self.unicast.remove(address, now)
        self._delivery.drop(address)
        return effects

    def _check(self) -> None:
        self.unicast._check()
        self.channel._check()
        self.snapshots._check()
        if self._membership is not None:
            self._membership._check()
            assert self.members == self._membership.view.members or self._membership.has_left
