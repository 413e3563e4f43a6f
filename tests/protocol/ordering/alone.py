"""The machine of total order by itself: ways to bring it into a state, and short names for what it takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Deliver, Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND
from motet.protocol.core.view import View, ViewId
from motet.protocol.ordering import OrderingConfig, TotalOrder
from motet.protocol.wire.body import pack
from motet.protocol.wire.frames import Progress, ProposalRequest, Proposals, Stable
from motet.protocol.wire.ordered import Ordered, SequenceNumber, seal, unseal

A, B, C = (Address(name, "127.0.0.1", 7800 + index, (index + 1) << 48) for index, name in enumerate("ABC"))
V1, V2, V3 = (ViewId(number, A.incarnation) for number in (1, 2, 3))
CONFIG = OrderingConfig()
ASK_NS = CONFIG.ask_ns
TELL_NS = CONFIG.progress_ns
START = 100 * MILLISECOND  # of the view; no clock starts at 0


def machine(
    local: Address = A,
    members: Sequence[Address] = (A, B, C),
    config: OrderingConfig = CONFIG,
    *,
    is_primary: bool = True,
) -> TotalOrder:
    """In view 1 since `START`."""
    order = TotalOrder(local, config, Counters())
    assert order.begin_view(View(V1, tuple(members), is_primary), START) == []
    order._check()
    return order


def calm(local: Address = A, members: Sequence[Address] = (A, B, C), config: OrderingConfig = CONFIG) -> TotalOrder:
    """All have heard that all are in the view: there is nothing to tell."""
    order = machine(local, members, config)
    order.tick(START)
    if local == members[0]:
        for other in members[1:]:
            order.receive(other, Progress(V1, 0), START)
    else:
        order.receive(members[0], Stable(V1, 0), START)
    assert order.tick(START + TELL_NS) == []
    assert order.next_deadline() is None
    return order


def counted(order: TotalOrder, what: Count) -> int:
    return order._counters[what]


def body(*texts: str) -> bytes:
    return pack([text.encode() for text in texts])


def data(*texts: str, first: int = 1, numbers: Sequence[SequenceNumber] = ()) -> bytes:
    """One frame that is to be ordered, and the numbers that ride on it."""
    return seal(first, numbers, body(*texts), is_ordered=True)


def seq(first: int, *numbers: SequenceNumber) -> bytes:
    """Numbers alone."""
    return seal(first, numbers, b"", is_ordered=False)


def is_eager(order: TotalOrder) -> bool:
    return order.is_eager


def leaving(order: TotalOrder) -> list[Ordered]:
    """All that the stream can take now."""
    bodies = []
    while (taken := order.next_body()) is not None:
        bodies.append(unseal(taken))
    order._check()
    return bodies


def speak(order: TotalOrder, *texts: str, now: int = START) -> list[Effect]:
    """Send each text as a message of its own; all that leaves is also delivered by our own stream, one by one."""
    effects: list[Effect] = []
    for text in texts:
        order.send([text.encode()])
        effects += hear_ourselves(order, now)
    return effects


def hear_ourselves(order: TotalOrder, now: int = START) -> list[Effect]:
    effects: list[Effect] = []
    while (taken := order.next_body()) is not None:
        effects += order.take(order._local, [taken], now)
        order._check()
    return effects


def proposals(*runs: tuple[int, int, int], view: ViewId = V1) -> Proposals:
    return Proposals(view, runs)


def answer(order: TotalOrder, *runs: tuple[int, int, int], now: int = START) -> None:
    """All others of the view propose the same."""
    for member in order._view.members:
        if member != order._local:
            assert order.receive(member, proposals(*runs), now) == []
    order._check()


def request(first: int, last: int) -> ProposalRequest:
    return ProposalRequest(V1, first, last)


def total(sender: Address, frame_id: int, position: int, *texts: str) -> Deliver:
    return Deliver(Channel.TOTAL, sender, frame_id, (body(*texts),), position, (0,))


def together(first: Deliver, *others: Deliver) -> Deliver:
    """Frames that are handed up as one."""
    bodies, times = (first.bodies, *(other.bodies for other in others)), (0,) * (len(others) + 1)
    return replace(first, bodies=sum(bodies, ()), sent_at=times)


def to(address: Address, frame: Proposals | ProposalRequest | Progress | Stable) -> Transmit:
    return Transmit(address, frame)


def ticks(order: TotalOrder, until: int) -> list[tuple[int, list[Effect]]]:
    """What the machine does by itself up to and including `until`: (when, effects), silent ticks left out."""
    done: list[tuple[int, list[Effect]]] = []
    while (due := order.next_deadline()) is not None and due <= until:
        effects = order.tick(due)
        order._check()
        assert order.next_deadline() != due, "a tick must move its deadline"
        if effects:
            done.append((due, effects))
    return done
