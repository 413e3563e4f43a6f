"""One member as its driver sees it: datagrams in, datagrams and messages out. Time is a number that a test hands in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random

import pytest

from motet.errors import ConfigError, LeftGroupError, MisuseError, PeerUnreachableError
from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Admitted, Channel, Effect, Frame, SendFailed
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import Datagram, Delivered, Member, MemberConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.unicast import UnicastConfig
from motet.protocol.wire.body import pack
from motet.protocol.wire.codec import DecodedDatagram, decode, encode, group_id
from motet.protocol.wire.frames import (
    Highest,
    MulticastAck,
    MulticastData,
    MulticastXmitRequest,
    UnicastAck,
    UnicastData,
)

GROUP = "orders"
A, B, C = (Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("ABC", start=1))
B_AGAIN = replace(B, incarnation=22)  # the same process, restarted
STRANGER = Address("S", "127.0.0.1", 7099, 99)
LATENCY_NS = MILLISECOND
FIVE_MIB = 5 << 20
EMPTY_BODY = pack([])


def start(address: Address = A, *, group: str = GROUP, config: MemberConfig | None = None) -> Member:
    return Member(address, group, config or MemberConfig(), Random(address.incarnation))


def start_in_view(*others: Address, config: MemberConfig | None = None) -> Member:
    member = start(config=config)
    member.install_view((A, *others), dict.fromkeys((A, *others), 0), 0)
    return member


def frame_of(datagram: Datagram) -> Frame:
    envelope = decode(group_id(GROUP), datagram.data)
    assert isinstance(envelope, DecodedDatagram), envelope
    return envelope.frame


def datagrams(effects: Sequence[Effect]) -> list[Datagram]:
    return [effect for effect in effects if isinstance(effect, Datagram)]


def delivered(effects: Sequence[Effect]) -> list[Delivered]:
    return [effect for effect in effects if isinstance(effect, Delivered)]


class Wire:
    """Members in one view on a wire that loses what it is told to lose; everything arrives after one latency."""

    def __init__(self, *addresses: Address, config: MemberConfig | None = None) -> None:
        self.now = 0
        self.members = {address: start(address, config=config) for address in addresses}
        self.log: list[Datagram] = []
        self.inboxes: dict[tuple[Channel, Address, Address], list[bytes]] = defaultdict(list)
        self.is_lost: Callable[[Frame], bool] = lambda _: False
        self._flying: list[tuple[int, int, Address, bytes]] = []  # (arrives at, order of transmission, to, bytes)
        for address, member in self.members.items():
            self.perform(address, member.install_view(addresses, dict.fromkeys(addresses, 0), 0))

    def __getitem__(self, address: Address) -> Member:
        return self.members[address]

    def inbox(self, channel: Channel, member: Address, sender: Address) -> list[bytes]:
        return self.inboxes[channel, member, sender]

    def send(self, source: Address, to: Address, *messages: bytes) -> None:
        self.perform(source, self[source].send(to, messages, self.now))

    def multicast(self, source: Address, *messages: bytes) -> None:
        self.perform(source, self[source].multicast_messages(messages, self.now))

    def perform(self, member: Address, effects: Sequence[Effect]) -> None:
        self[member]._check()
        for effect in effects:
            if isinstance(effect, Datagram):
                self._transmit(effect)
            elif isinstance(effect, Delivered):
                self.inboxes[effect.channel, member, effect.sender] += effect.messages

    def run_for(self, duration_ns: int) -> None:
        end = self.now + duration_ns
        while (moment := self._next_moment()) <= end:
            self.now = max(self.now, moment)
            self._step()
        self.now = end

    def _transmit(self, datagram: Datagram) -> None:
        self.log.append(datagram)
        if not self.is_lost(frame_of(datagram)):
            for to in datagram.to:
                assert isinstance(to, Address)
                heappush(self._flying, (self.now + LATENCY_NS, len(self.log), to, datagram.data))

    def _next_moment(self) -> int:
        moments = [due for member in self.members.values() if (due := member.next_deadline()) is not None]
        if self._flying:
            moments.append(self._flying[0][0])
        return min(moments, default=1 << 62)

    def _step(self) -> None:
        arrived: dict[Address, list[bytes]] = defaultdict(list)
        while self._flying and self._flying[0][0] <= self.now:
            _, _, to, data = heappop(self._flying)
            arrived[to].append(data)
        for address, member in self.members.items():
            if address in arrived:
                self.perform(address, member.receive(arrived[address], self.now))
            deadline = member.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.perform(address, member.tick(self.now))


class TestRouting:
    def test_a_unicast_message_reaches_its_receiver_alone_and_in_order(self) -> None:
        wire = Wire(A, B, C)
        wire.send(A, B, b"one", b"two")
        wire.send(A, B, b"three")
        wire.run_for(SECOND)
        assert wire.inbox(Channel.UNICAST, B, A) == [b"one", b"two", b"three"]
        assert wire.inbox(Channel.UNICAST, C, A) == []

    def test_a_multicast_message_reaches_everybody_the_sender_included(self) -> None:
        wire = Wire(A, B, C)
        wire.multicast(B, b"one", b"two")
        wire.run_for(SECOND)
        for member in (A, B, C):
            assert wire.inbox(Channel.MULTICAST, member, B) == [b"one", b"two"]

    def test_the_two_channels_do_not_mix(self) -> None:
        wire = Wire(A, B)
        wire.multicast(A, b"to all")
        wire.send(A, B, b"to you")
        wire.run_for(SECOND)
        assert wire.inbox(Channel.MULTICAST, B, A) == [b"to all"]
        assert wire.inbox(Channel.UNICAST, B, A) == [b"to you"]

    def test_one_wake_up_with_frames_of_several_peers_and_both_channels_loses_none(self) -> None:
        sent = []
        for address in (B, C):
            peer = start(address)
            peer.install_view((A, B, C), {A: 0, B: 0, C: 0}, 0)
            for _ in range(2):
                sent += datagrams(peer.multicast_messages([b"to all"], 0))
                sent += datagrams(peer.send(A, [b"to you"], 0))
        member = start_in_view(B, C)
        effects = delivered(member.receive([datagram.data for datagram in sent], 0))
        for channel, message in ((Channel.MULTICAST, b"to all"), (Channel.UNICAST, b"to you")):
            for sender in (B, C):
                got = [m for e in effects if (e.channel, e.sender) == (channel, sender) for m in e.messages]
                assert got == [message, message]

    def test_a_run_of_frames_of_one_peer_is_handled_as_one_batch(self) -> None:
        peer = start(B)
        peer.install_view((A, B), {A: 0, B: 0}, 0)
        sent = [datagrams(peer.multicast_messages([bytes([number])], 0))[0].data for number in range(5)]
        member = start_in_view(B)
        (delivery,) = delivered(member.receive(sent, 0))
        assert delivery == Delivered(Channel.MULTICAST, B, tuple(bytes([number]) for number in range(5)))

    def test_what_is_no_frame_and_no_delivery_passes_through_unchanged(self) -> None:
        member = start_in_view(B)
        assert Admitted(Channel.MULTICAST, None, 1) in member.multicast_messages([b"one"], 0)
        assert Admitted(Channel.UNICAST, B, 1) in member.send(B, [b"one"], 0)


class TestBroadcast:
    def test_it_is_encoded_once_for_all_others(self) -> None:
        member = start_in_view(B, C)
        (datagram,) = datagrams(member.multicast_messages([b"one"], 0))
        assert datagram.to == (B, C)
        envelope = decode(group_id(GROUP), datagram.data)
        assert isinstance(envelope, DecodedDatagram)
        assert (envelope.source, envelope.destination) == (A.incarnation, NOBODY)
        assert isinstance(envelope.frame, MulticastData)

    def test_it_goes_to_the_view_of_the_moment(self) -> None:
        member = start_in_view(B, C)
        member.install_view((A, C), {}, 0)
        (datagram,) = datagrams(member.multicast_messages([b"one"], 0))
        assert datagram.to == (C,)

    def test_what_a_new_view_releases_goes_to_the_new_view(self) -> None:
        member = start_in_view(B, C, config=MemberConfig(multicast=MulticastConfig(capacity=1)))
        member.multicast_messages([b"one"], 0)
        member.multicast_messages([b"two"], 0)
        data = encode(group_id(GROUP), C.incarnation, NOBODY, MulticastAck(1))
        assert datagrams(member.receive([data], 0)) == []
        (datagram,) = datagrams(member.install_view((A, C), {}, 0))
        assert datagram.to == (C,)

    def test_alone_there_is_nobody_to_send_to(self) -> None:
        member = start()
        effects = member.multicast_messages([b"one"], 0)
        assert datagrams(effects) == []
        assert delivered(effects) == [Delivered(Channel.MULTICAST, A, (b"one",))]
        assert datagrams(member.tick(SECOND)) == []

    def test_a_unicast_names_its_destination(self) -> None:
        member = start_in_view(B)
        (datagram,) = datagrams(member.send(B, [b"one"], 0))
        envelope = decode(group_id(GROUP), datagram.data)
        assert isinstance(envelope, DecodedDatagram)
        assert datagram.to == (B,)
        assert envelope.destination == B.incarnation


class TestLargeMessages:
    SMALL_WINDOWS = MemberConfig(unicast=UnicastConfig(capacity=16), multicast=MulticastConfig(capacity=16))
    MESSAGE = Random(5).randbytes(FIVE_MIB)

    @pytest.mark.parametrize("config", [MemberConfig(), SMALL_WINDOWS], ids=["fits the window", "longer than it"])
    def test_five_mebibytes_by_unicast_arrive_whole_between_small_ones(self, config: MemberConfig) -> None:
        wire = Wire(A, B, config=config)
        wire.send(A, B, b"before", self.MESSAGE, b"after")
        wire.run_for(5 * SECOND)
        assert wire.inbox(Channel.UNICAST, B, A) == [b"before", self.MESSAGE, b"after"]
        assert len(wire.log) > FIVE_MIB // config.frame_bytes

    @pytest.mark.parametrize("config", [MemberConfig(), SMALL_WINDOWS], ids=["fits the window", "longer than it"])
    def test_five_mebibytes_by_multicast_arrive_whole_between_small_ones(self, config: MemberConfig) -> None:
        wire = Wire(A, B, C, config=config)
        wire.multicast(A, b"before", self.MESSAGE, b"after")
        wire.run_for(5 * SECOND)
        for member in (A, B, C):
            assert wire.inbox(Channel.MULTICAST, member, A) == [b"before", self.MESSAGE, b"after"]

    def test_fragments_that_are_lost_are_repaired(self) -> None:
        wire = Wire(A, B)
        lost = iter(range(1_000))
        wire.is_lost = lambda frame: isinstance(frame, UnicastData | MulticastData) and next(lost) % 7 == 3
        wire.send(A, B, self.MESSAGE)
        wire.multicast(B, self.MESSAGE)
        wire.run_for(20 * SECOND)
        assert wire.inbox(Channel.UNICAST, B, A) == [self.MESSAGE]
        assert wire.inbox(Channel.MULTICAST, A, B) == [self.MESSAGE]

    def test_fragments_of_several_senders_and_channels_do_not_mix(self) -> None:
        wire = Wire(A, B, C)
        pieces = {sender: Random(sender.incarnation).randbytes(200_000) for sender in (A, B)}
        for sender, message in pieces.items():
            wire.multicast(sender, message)
            wire.send(sender, C, message[::-1])
        wire.run_for(SECOND)
        for sender, message in pieces.items():
            assert wire.inbox(Channel.MULTICAST, C, sender) == [message]
            assert wire.inbox(Channel.UNICAST, C, sender) == [message[::-1]]

    def test_a_joiner_that_comes_in_the_middle_of_a_message_starts_with_the_next_one(self) -> None:
        config = MemberConfig(frame_bytes=256)
        peer = start(B, config=config)
        peer.install_view((A, B), {A: 0, B: 0}, 0)
        sent = [datagram.data for datagram in datagrams(peer.multicast_messages([bytes(500), b"next"], 0))]
        member = start(config=config)
        member.install_view((A, B), {A: 0, B: 1}, 0)
        assert delivered(member.receive(sent, 0)) == [Delivered(Channel.MULTICAST, B, (b"next",))]
        assert member.counters[Count.BODY_INCOHERENT] > 0

    def test_a_digest_that_skips_ahead_never_glues_two_messages_together(self) -> None:
        """Both have the same length, and the stream goes on in the second at the offset where the first one stopped."""
        config = MemberConfig(frame_bytes=256)
        peer = start(B, config=config)
        peer.install_view((A, B), {A: 0, B: 0}, 0)
        first = [datagram.data for datagram in datagrams(peer.multicast_messages([b"1" * 500], 0))]
        second = [datagram.data for datagram in datagrams(peer.multicast_messages([b"2" * 500], 0))]
        assert len(first) == len(second) == 3
        member = start_in_view(B, config=config)
        member.receive(first[:1], 0)
        effects = member.install_view((A, B), {B: 4}, 0)  # 2, 3 and 4 are skipped: 4 begins the second message
        effects += member.receive(second[1:], 0)
        for delivery in delivered(effects):
            assert set(delivery.messages) <= {b"1" * 500, b"2" * 500}

    def test_a_message_of_a_member_that_left_in_the_middle_of_it_is_forgotten(self) -> None:
        config = MemberConfig(frame_bytes=256)
        peer = start(B, config=config)
        peer.install_view((A, B), {A: 0, B: 0}, 0)
        sent = [datagram.data for datagram in datagrams(peer.multicast_messages([bytes(500)], 0))]
        member = start_in_view(B, config=config)
        assert delivered(member.receive(sent[:-1], 0)) == []
        member.install_view((A,), {}, 0)
        assert member._delivery._reassemblers == {}

    @pytest.mark.parametrize("channel", [Channel.UNICAST, Channel.MULTICAST])
    def test_no_data_datagram_is_larger_than_frame_bytes(self, channel: Channel) -> None:
        config = MemberConfig(frame_bytes=300)
        wire = Wire(A, B, config=config)
        messages = [bytes(size) for size in range(0, 1_000, 37)]
        if channel is Channel.UNICAST:
            wire.send(A, B, *messages)
        else:
            wire.multicast(A, *messages)
        wire.run_for(SECOND)
        assert wire.inbox(channel, B, A) == messages
        assert 280 < max(len(datagram.data) for datagram in wire.log) <= 300

    def test_a_request_for_many_gaps_is_not_larger_than_frame_bytes(self) -> None:
        member = start_in_view(B, config=MemberConfig(frame_bytes=512))
        for seqno in range(2, 200, 2):
            frame = MulticastData(B.incarnation, seqno, 0, EMPTY_BODY)
            member.receive([encode(group_id(GROUP), B.incarnation, NOBODY, frame)], 0)
        for now in (30 * MILLISECOND, 60 * MILLISECOND):
            requests = [d for d in datagrams(member.tick(now)) if isinstance(frame_of(d), MulticastXmitRequest)]
            assert requests
            assert max(len(request.data) for request in requests) <= 512


class TestAdmission:
    ACK = UnicastAck(1, 1)

    def encoded(self, frame: Frame, *, group: str = GROUP, source: int = B.incarnation, to: int = NOBODY) -> bytes:
        return encode(group_id(group), source, to, frame)

    def test_a_datagram_for_an_earlier_life_of_this_process_is_dropped_and_counted(self) -> None:
        member = start(B_AGAIN)
        member.learn(A)
        old = UnicastData(1, True, 1, EMPTY_BODY)
        assert member.receive([self.encoded(old, source=A.incarnation, to=B.incarnation)], 0) == []
        assert member.counters == {Count.NOT_FOR_US: 1}
        assert member.receive([self.encoded(old, source=A.incarnation, to=B_AGAIN.incarnation)], 0) != []

    def test_a_datagram_of_an_earlier_life_of_a_peer_is_not_taken_for_the_later_one(self) -> None:
        member = start_in_view(B_AGAIN)
        frame = MulticastData(B.incarnation, 1, 0, EMPTY_BODY)
        assert member.receive([self.encoded(frame, source=B.incarnation)], 0) == []
        assert member.counters == {Count.SOURCE_UNKNOWN: 1}

    def test_a_source_that_nobody_introduced_is_dropped_and_counted(self) -> None:
        member = start_in_view(B)
        assert member.receive([self.encoded(self.ACK, source=STRANGER.incarnation)], 0) == []
        assert member.counters == {Count.SOURCE_UNKNOWN: 1}

    def test_a_datagram_of_another_group_is_rejected_and_counted(self) -> None:
        member = start_in_view(B)
        assert member.receive([self.encoded(self.ACK, group="payments")], 0) == []
        assert member.counters == {Count.DATAGRAM_REJECTED: 1}

    @pytest.mark.parametrize("garbage", [b"", b"hello", bytes(100), b"mT" + bytes(300)])
    def test_garbage_is_rejected_and_counted_and_the_frames_around_it_are_handled(self, garbage: bytes) -> None:
        member = start_in_view(B)
        good = self.encoded(MulticastData(B.incarnation, 1, 0, EMPTY_BODY))
        more = self.encoded(MulticastData(B.incarnation, 2, 0, EMPTY_BODY))
        member.receive([good, garbage, more], 0)
        assert member.counters[Count.DATAGRAM_REJECTED] == 1
        assert member.counters[Count.FRAME_DELIVERED] == 2

    def test_nothing_at_all_is_nothing_to_do(self) -> None:
        assert start_in_view(B).receive([], 0) == []

    def test_whoever_is_in_a_view_is_known(self) -> None:
        member = start_in_view(B)
        member.receive([self.encoded(Highest(0, 0))], 0)
        assert member.counters[Count.SOURCE_UNKNOWN] == 0

    def test_whoever_was_introduced_may_send_unicasts_without_being_in_the_view(self) -> None:
        peer = start(C)
        (datagram,) = datagrams(peer.send(A, [b"may I join?"], 0))
        member = start()
        member.learn(C)
        assert delivered(member.receive([datagram.data], 0)) == [Delivered(Channel.UNICAST, C, (b"may I join?",))]

    def test_our_own_broadcast_that_the_network_brings_back_is_not_delivered_twice(self) -> None:
        member = start_in_view(B)
        effects = member.multicast_messages([b"one"], 0)
        assert delivered(effects) == [Delivered(Channel.MULTICAST, A, (b"one",))]
        assert member.receive([datagrams(effects)[0].data], 0) == []
        assert member.counters[Count.SOURCE_OURSELVES] == 1


class TestForget:
    def test_a_member_of_the_view_cannot_be_forgotten(self) -> None:
        member = start_in_view(B)
        with pytest.raises(MisuseError, match="install a view without it first"):
            member.forget(B, 0)
        assert datagrams(member.send(B, [b"still here"], 0))

    def test_oneself_cannot_be_forgotten(self) -> None:
        member = start()
        with pytest.raises(MisuseError):
            member.forget(A, 0)

    def test_whoever_waits_for_it_is_released_with_a_clear_error(self) -> None:
        member = start_in_view(B, C)
        member.send(B, [b"one", b"two"], 0)
        member.install_view((A, C), {}, 0)
        failures = [effect for effect in member.forget(B, 0) if isinstance(effect, SendFailed)]
        assert [(f.channel, f.to, f.first, f.last) for f in failures] == [(Channel.UNICAST, B, 1, 2)]
        assert isinstance(failures[0].error, PeerUnreachableError)
        assert member.buffered_frames == 0

    def test_its_frames_are_dropped_from_then_on(self) -> None:
        member = start_in_view(B)
        member.install_view((A,), {}, 0)
        member.forget(B, 0)
        member.receive([encode(group_id(GROUP), B.incarnation, NOBODY, UnicastAck(1, 1))], 0)
        assert member.counters == {Count.SOURCE_UNKNOWN: 1}

    def test_unfinished_messages_of_it_are_dropped(self) -> None:
        config = MemberConfig(frame_bytes=256)
        (begun, *_) = datagrams(start(B, config=config).send(A, [bytes(500)], 0))
        member = start(config=config)
        member.learn(B)
        member.receive([begun.data], 0)
        assert len(member._delivery._reassemblers) == 1
        member.forget(B, 0)
        assert member._delivery._reassemblers == {}

    def test_multicasts_that_were_kept_for_its_view_are_dropped(self) -> None:
        member = start()
        member.learn(B)
        frame = MulticastData(B.incarnation, 1, 0, EMPTY_BODY)
        member.receive([encode(group_id(GROUP), B.incarnation, NOBODY, frame)], 0)
        assert member.buffered_frames == 1
        member.forget(B, 0)
        assert member.buffered_frames == 0

    def test_somebody_unknown_is_forgotten_without_a_word(self) -> None:
        assert start().forget(STRANGER, 0) == []


class TestDeadlines:
    def test_a_member_at_rest_has_none(self) -> None:
        assert start_in_view(B).next_deadline() is None

    def test_the_next_one_is_the_minimum_over_both_machines(self) -> None:
        member = start_in_view(B)
        member.send(B, [b"one"], 0)
        assert member.next_deadline() == member.unicast.next_deadline()
        member.multicast_messages([b"one"], 0)
        both = (member.unicast.next_deadline(), member.multicast.next_deadline())
        assert None not in both
        assert member.next_deadline() == min(due for due in both if due is not None)
        assert member.next_deadline() == member.multicast.next_deadline()

    def test_a_tick_serves_both_machines(self) -> None:
        member = start_in_view(B)
        member.send(B, [b"one"], 0)
        member.multicast_messages([b"one"], 0)
        kinds = {type(frame_of(datagram)) for datagram in datagrams(member.tick(SECOND))}
        assert kinds == {UnicastData, Highest}


class TestOneself:
    def test_unicasts_to_oneself_come_in_order_once_and_with_the_same_repairs(self) -> None:
        wire = Wire(A)
        lost = iter([False, True, False])
        wire.is_lost = lambda frame: isinstance(frame, UnicastData) and next(lost, False)
        for number in range(5):
            wire.send(A, A, bytes([number]))
        wire.run_for(SECOND)
        assert wire.inbox(Channel.UNICAST, A, A) == [bytes([number]) for number in range(5)]

    def test_multicasts_to_oneself_come_in_order_once(self) -> None:
        wire = Wire(A, B)
        for number in range(5):
            wire.multicast(A, bytes([number]))
        wire.run_for(SECOND)
        assert wire.inbox(Channel.MULTICAST, A, A) == [bytes([number]) for number in range(5)]

    def test_a_large_unicast_to_oneself_arrives_whole(self) -> None:
        wire = Wire(A)
        message = Random(1).randbytes(300_000)
        wire.send(A, A, message)
        wire.run_for(SECOND)
        assert wire.inbox(Channel.UNICAST, A, A) == [message]


class TestHolding:
    def test_while_held_nothing_is_handed_up_on_either_channel_and_then_all_of_it(self) -> None:
        wire = Wire(A, B)
        wire[B].pause()
        wire.send(A, B, b"to you")
        wire.multicast(A, b"to all")
        wire.run_for(SECOND)
        assert wire.inbox(Channel.UNICAST, B, A) == wire.inbox(Channel.MULTICAST, B, A) == []
        wire.perform(B, wire[B].resume(wire.now))
        assert wire.inbox(Channel.UNICAST, B, A) == [b"to you"]
        assert wire.inbox(Channel.MULTICAST, B, A) == [b"to all"]

    def test_memory_stays_within_the_windows(self) -> None:
        config = MemberConfig(unicast=UnicastConfig(capacity=4), multicast=MulticastConfig(capacity=4))
        wire = Wire(A, B, config=config)
        wire[B].pause()
        for _ in range(50):
            wire.send(A, B, bytes(50_000))
            wire.multicast(A, bytes(50_000))
        wire.run_for(10 * SECOND)
        assert wire[B].buffered_frames == 4 + 4
        wire.perform(B, wire[B].resume(wire.now))
        wire.run_for(10 * SECOND)
        assert len(wire.inbox(Channel.UNICAST, B, A)) == len(wire.inbox(Channel.MULTICAST, B, A)) == 50


class TestViews:
    def test_a_view_that_is_refused_changes_nothing(self) -> None:
        member = start_in_view(B)
        with pytest.raises(MisuseError):
            member.install_view((A, B, C), {}, 0)
        assert member.members == (A, B)
        (datagram,) = datagrams(member.multicast_messages([b"one"], 0))
        assert datagram.to == (B,)

    def test_members_stand_in_the_order_that_was_agreed(self) -> None:
        member = start()
        member.install_view((C, A, B), {A: 0, B: 0, C: 0}, 0)
        assert member.members == (C, A, B)

    def test_a_multicast_before_the_view_is_delivered_with_it(self) -> None:
        peer = start(B)
        peer.install_view((A, B), {A: 0, B: 0}, 0)
        (datagram,) = datagrams(peer.multicast_messages([b"early"], 0))
        member = start()
        member.learn(B)
        assert member.receive([datagram.data], 0) == []
        effects = member.install_view((A, B), {A: 0, B: 0}, 0)
        assert delivered(effects) == [Delivered(Channel.MULTICAST, B, (b"early",))]

    def test_leaving_ends_what_waits_and_refuses_the_rest(self) -> None:
        member = start_in_view(B, config=MemberConfig(multicast=MulticastConfig(capacity=1)))
        member.multicast_messages([b"one"], 0)
        member.multicast_messages([b"two"], 0)
        (failed,) = member.leave(0)
        assert isinstance(failed, SendFailed)
        assert isinstance(failed.error, LeftGroupError)
        with pytest.raises(LeftGroupError):
            member.multicast_messages([b"three"], 0)


def test_a_frame_size_outside_its_range_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="frame_bytes = 100 is outside what is allowed: 256 to 65507"):
        MemberConfig(frame_bytes=100)


@pytest.mark.parametrize("frame_bytes", [256, 1_400, 60_000, 65_507])
def test_any_frame_size_that_is_allowed_gives_a_member_that_works(frame_bytes: int) -> None:
    wire = Wire(A, B, config=MemberConfig(frame_bytes=frame_bytes))
    wire.multicast(A, bytes(100_000))
    wire.run_for(2 * SECOND)
    assert wire.inbox(Channel.MULTICAST, B, A) == [bytes(100_000)]
