"""The figures of a running member: one dictionary, made on the driver's loop, for probe, metrics and dashboard."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import Channel, Effect, SendFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import View
from motet.protocol.member import Delivered, Member
from motet.protocol.member.segmentation import Mode
from motet.protocol.membership.detector import BecameBusy, BecameResponsive, Suspected, Trusted
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.membership.transfer import StateDelayed, StateFailed, StateLost, StateRefused
from motet.protocol.ordering import RolledBack
from motet.runtime.driver import Driver

MOST_VIEWS = 20
MOST_EVENTS = 50
MOST_LATENCIES = 512
MOST_NOTICE = 1_000  # bytes
logger = logging.getLogger("motet")


class Observer:
    """Receives the effects that the driver performed, and keeps what the figures need."""

    def __init__(self, group: str, driver: Driver) -> None:
        self._group = group
        self._driver = driver
        self._world = driver.world
        self._started = self._time()
        self._views: deque[dict[str, Any]] = deque(maxlen=MOST_VIEWS)
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._latencies: deque[int] = deque(maxlen=MOST_LATENCIES)  # ns from sending to delivery, one per frame
        self._delivered = 0
        self._delivered_bytes = 0
        self._marked = (self._world.clock(), 0, 0, 0)  # when, delivered, bytes, sent
        self._rates = {"sent_per_s": 0.0, "delivered_per_s": 0.0, "bytes_per_s": 0.0}
        self.queue: dict[str, Any] = {"messages": 0, "bytes": 0, "limit": 0, "paused": False}
        self.services: dict[str, str] = {}
        self.first: Callable[[], int] = lambda: 1  # the first position that a journal still has
        self._mode = Mode.WHOLE
        self._notices: dict[Address, dict[str, str]] = {}  # where other members serve what

    def observe(self, effects: list[Effect]) -> None:
        """Called on the driver's loop after the effects were performed."""
        for effect in effects:
            if isinstance(effect, Delivered):
                self._delivered += len(effect.messages)
                self._delivered_bytes += sum(map(len, effect.bodies))
                if effect.channel is Channel.TOTAL and effect.sent_at:
                    self._latencies.append(self._world.wall_clock() - effect.sent_at[-1])
            elif isinstance(effect, ViewInstalled):
                self._note_view(effect)
            elif isinstance(effect, RolledBack):
                self._note("rolled_back", f"positions {effect.first} to {effect.last} were rolled back")
            elif isinstance(effect, StateLost | StateRefused | StateDelayed | StateFailed):
                self._note_state(effect)
            elif isinstance(effect, SendFailed):
                self._note("send_failed", str(effect.error))
            elif isinstance(effect, Suspected | Trusted):
                self._note(type(effect).__name__.lower(), str(effect.peer))
            elif isinstance(effect, BecameBusy):
                self._note("busy", str(effect.peer))
                logger.warning("%s is busy: its process is alive but does not run its driver", effect.peer)
            elif isinstance(effect, BecameResponsive):
                self._note("responsive", str(effect.peer))
                logger.info("%s is no longer busy", effect.peer)

        if self._driver.member.segmentation.mode is not self._mode:
            self._note_mode(self._driver.member.segmentation.mode)

    def receive_notice(self, source: Address, notice: bytes) -> None:
        """Called on the application's loop. A notice comes from another process: only short texts are accepted."""
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            parsed = json.loads(notice) if len(notice) <= MOST_NOTICE else {}
            self._notices[source] = {name: place for name, place in parsed.items() if isinstance(place, str)}

    def _peers(self, view: View) -> list[dict[str, Any]]:
        members = [member for member in view.members if member != self._driver.member.address]
        for gone in [member for member in list(self._notices) if member not in view]:
            self._notices.pop(gone, None)
        return [{"member": str(m), "name": m.name, "admin": self._notices.get(m, {}).get("admin")} for m in members]

    def _links(self) -> list[dict[str, Any]]:
        return [
            {
                "peer": str(peer),
                "loss_in": round(link.loss_in, 3),
                "loss_out": round(link.loss_out, 3),
                "round_trip_us": None if link.round_trip_ns is None else round(link.round_trip_ns / 1e3, 1),
                "suspected_after_s": round(link.detection_ns / SECOND, 2),
            }
            for peer, link in self._driver.member.membership.links().items()
        ]

    def _note_view(self, effect: ViewInstalled) -> None:
        view, now = effect.view, self._time()
        names = [member.name for member in view.members]
        merged = [str(part.id) for part in effect.subviews] if len(effect.subviews) > 1 else []
        self._views.append(
            {"at": now, "id": str(view.id), "members": names, "primary": view.is_primary, "merged_from": merged}
        )
        self._note("view", f"{view.id} {'primary' if view.is_primary else 'not primary'}: {', '.join(names)}")

    def _note_state(self, effect: StateLost | StateRefused | StateDelayed | StateFailed) -> None:
        match effect:
            case StateLost():
                self._note("state_lost", f"nobody in {effect.view} has the state of the group")
            case StateRefused():
                self._note("state_refused", f"{effect.by} did not give the state: {effect.reason}")
            case StateDelayed():
                self._note("state_delayed", f"{effect.provider} has not given the state yet")
            case StateFailed():
                self._note("state_failed", effect.reason)

    def _note_mode(self, mode: Mode) -> None:
        self._mode = mode
        size = self._driver.member.segmentation.packet_bytes
        how = "in one piece" if mode is Mode.WHOLE else f"in segments of {size} bytes ({mode.name.lower()})"
        self._note("segments", f"datagrams larger than a packet leave {how}")
        if mode is Mode.LIGHT:
            logger.info("packets are lost: datagrams larger than a packet leave %s", how)

    def _note(self, kind: str, text: str) -> None:
        self._events.append({"at": self._time(), "kind": kind, "text": text})

    def _time(self) -> float:
        return self._world.wall_clock() / SECOND

    # Figures

    def stats(self) -> dict[str, Any]:
        member = self._driver.member
        return {
            "group": self._group,
            "member": str(member.address),
            "name": member.address.name,
            "incarnation": f"{member.address.incarnation:016x}",
            "endpoint": str(member.address.endpoint),
            "version": version("motet"),
            "uptime_s": round(self._time() - self._started, 1),
            "view": _view(member.view),
            "log": self._log(member),
            "state": _state(member),
            "frames": _frames(member),
            "multicast": _multicast(member),
            "unicast": _unicast(member),
            "queue": self.queue,
            "rates": self._measure(),
            "latency": self._latency(),
            "counters": {count.value: member.counters[count] for count in Count},
            "lost_datagrams": self._driver.transport.lost,
            "suspects": [str(suspect) for suspect in member.membership.suspects],
            "busy": [str(peer) for peer in member.membership.busy],
            "faults": [str(rule) for rule in self._driver.faults.rules],
            "views": list(self._views),
            "events": list(self._events),
            "peers": self._peers(member.view),
            "links": self._links(),
            "services": self.services,
            "memory_bytes": memory_bytes(),
            "cpu_s": round(time.process_time(), 3),
        }

    def _log(self, member: Member) -> dict[str, Any]:
        ordering = member.channel.ordering
        assert ordering is not None
        return {
            "position": ordering.position,
            "stable": ordering.stable,
            "epoch": member.membership.epoch.number,
            "first": self.first(),
            "holdback": len(ordering.queue),
            "in_flight": ordering.in_flight,
        }

    def _measure(self) -> dict[str, float]:
        """Rates since the last call; a call within half a second returns the same ones."""
        now, sent = self._world.clock(), self._driver.sent_messages
        before, delivered, size, sent_before = self._marked
        passed = (now - before) / SECOND
        if passed >= 0.5:
            self._rates = {
                "sent_per_s": round((sent - sent_before) / passed, 1),
                "delivered_per_s": round((self._delivered - delivered) / passed, 1),
                "bytes_per_s": round((self._delivered_bytes - size) / passed, 1),
            }
            self._marked = (now, self._delivered, self._delivered_bytes, sent)
        return self._rates

    def _latency(self) -> dict[str, float | None]:
        if not self._latencies:
            return {"median_us": None, "p99_us": None}
        ordered = sorted(self._latencies)
        return {
            "median_us": round(ordered[len(ordered) // 2] / 1e3, 1),
            "p99_us": round(ordered[len(ordered) * 99 // 100] / 1e3, 1),
        }


def _view(view: View) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "number": view.id.number,
        "primary": view.is_primary,
        "coordinator": view.coordinator.name,
        "members": [{"name": m.name, "member": str(m), "endpoint": str(m.endpoint)} for m in view.members],
    }


def _state(member: Member) -> dict[str, Any]:
    """Whether this member has the application's state, waits for a provider, or is in a view where nobody has it."""
    membership = member.membership
    provider = membership.state_provider
    return {
        "present": not membership.is_waiting_for_state,
        "lost": membership.is_state_lost,
        "provider": None if provider is None else str(provider),
    }


def _frames(member: Member) -> dict[str, Any]:
    """How large datagrams leave, and what is lost of them."""
    segmentation, counters = member.segmentation, member.counters
    sent, resent = counters[Count.FRAME_SENT], counters[Count.FRAME_RESENT]
    return {
        "bytes": member.frame_bytes,
        "path_bytes": segmentation.path_bytes,
        "segment_bytes": segmentation.packet_bytes if segmentation.mode is not Mode.WHOLE else 0,
        "segments": segmentation.mode.name.lower(),
        "lost_share": round(segmentation.loss, 4),
        "resent_share": round(resent / (sent + resent), 4) if resent else 0.0,
    }


def _multicast(member: Member) -> dict[str, Any]:
    window = member.multicast.sender.window
    receivers = [
        (other, receiver.window)
        for other in member.view.members
        if (receiver := member.multicast.receiver(other)) is not None
    ]
    return {
        "low": window.low,
        "delivered": window.delivered,
        "high": window.high,
        "capacity": window.capacity,
        "waiting_bytes": member.multicast.sender.waiting_bytes,
        "receivers": [
            {
                "member": str(other),
                "low": w.low,
                "delivered": w.delivered,
                "high": w.high,
                "capacity": w.capacity,
                "missing": w.high - w.contiguous,
            }
            for other, w in receivers
        ],
    }


def _unicast(member: Member) -> list[dict[str, Any]]:
    connections = ((peer, member.unicast.sender(peer)) for peer in member.view.members)
    return [
        {
            "peer": str(peer),
            "state": connection.state.value,
            "low": connection.window.low,
            "high": connection.window.high,
            "waiting_bytes": connection.waiting_bytes,
        }
        for peer, connection in connections
        if connection is not None
    ]


def memory_bytes() -> int:
    """Resident memory of this process; where the system does not report it, the maximum so far."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
