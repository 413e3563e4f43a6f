"""A unicast machine by itself: ways to bring it into a state, and short names for what it answers."""

from __future__ import annotations

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Deliver, Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.unicast import Unicast, UnicastConfig
from motet.protocol.unicast.sender import ConnectionState
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import UnicastAck
from tests.protocol.unicast.link import FIRST_CONN_ID, NO_REAPING, A, B, data, numbered

TIMEOUT_NS = 30 * MILLISECOND  # of a round trip that was not measured yet: 10 ms and four times 5 ms
TASK_NS = TIMEOUT_NS + NO_REAPING.ack_max_ns  # the first run of a sender's retransmission task
SYNC_ID = 201  # the first that B draws
REAPING = UnicastConfig(conn_expiry_ns=10 * SECOND, conn_close_ns=4 * SECOND)


def machine(local: Address = A, config: UnicastConfig = NO_REAPING, first_conn_id: int | None = None) -> Unicast:
    return Unicast(local, config, Counters(), FIRST_CONN_ID[local] if first_conn_id is None else first_conn_id)


def counted(unicast: Unicast, count: Count) -> int:
    return unicast._counters[count]


def sending(count: int, config: UnicastConfig = NO_REAPING) -> Unicast:
    """A machine that has sent messages 1 to `count` to B at time 0, a frame each while the window has space."""
    unicast = machine(A, config)
    for message in numbered(1, count):
        unicast.send(B, [message], 0)
    return unicast


def receiving(count: int, config: UnicastConfig = NO_REAPING) -> Unicast:
    """The machine of B, which got frames 1 to `count` of A's connection 101 at time 0 and acked them."""
    unicast = machine(B, config)
    frames = [data(101, seqno, first=seqno == 1) for seqno in range(1, count + 1)]
    assert unicast.receive(A, frames, 0)[-1] == Transmit(A, UnicastAck(101, count))
    return unicast


def delivery(first: int, last: int) -> Deliver:
    return Deliver(Channel.UNICAST, A, first, tuple(pack([message]) for message in numbered(first, last)))


def to_b(*frames: Frame) -> list[Effect]:
    return [Transmit(B, frame) for frame in frames]


def to_a(*frames: Frame) -> list[Effect]:
    return [Transmit(A, frame) for frame in frames]


def ticks(unicast: Unicast, until: int) -> list[tuple[int, list[Effect]]]:
    """What the machine does by itself up to and including `until`: (when, effects), silent ticks left out."""
    done: list[tuple[int, list[Effect]]] = []
    while (due := unicast.next_deadline()) is not None and due <= until:
        effects = unicast.tick(due)
        unicast._check()
        assert unicast.next_deadline() != due, "a tick must move its deadline"
        if effects:
            done.append((due, effects))
    return done


def sender_state(unicast: Unicast) -> ConnectionState:
    connection = unicast.sender(B)
    return ConnectionState.CLOSED if connection is None else connection.state


def receiver_state(unicast: Unicast) -> ConnectionState:
    connection = unicast.receiver(A)
    return ConnectionState.CLOSED if connection is None else connection.state
