"""The overview of a group, merged from the figures that each member reports about itself.

The browser talks only to the member that serves the page, and that member polls the others. `source` says where the
figures of a member come from: `self`, `polled`, `reported` (it did not answer the poll, and its position is known from
the protocols) or `silent` (nothing is known). Members that report the same view id form one part; two parts are a
partition, or a view change that was observed half-way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from motet.admin.health import FAR_BEHIND, Growth, Health, Level, Remark, health, sorted_by_weight, window_fill
from motet.log.service.validated_json import (
    Stats,
    boolean,
    counters,
    integer,
    items,
    number,
    number_or_none,
    rows,
    text,
    texts,
)
from motet.protocol.core.counters import Count

RECENT_MERGE_S = 60
RECENT_VIEWS = 20
RECENT_EVENTS = 50
KNOWN = {str(count): count for count in Count}

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Seen:
    """The figures known at one moment."""

    own: Stats
    others: Mapping[str, Stats] = field(default_factory=dict)  # by member, as it names itself
    lost: Mapping[str, str] = field(default_factory=dict)  # names of former members that do not answer
    growth: Mapping[str, Growth] = field(default_factory=dict)  # by member
    stalled_s: float = 0.0
    at: float = 0.0  # seconds since 1970

    @property
    def answers(self) -> dict[str, Stats]:
        return {text(self.own, "member"): self.own, **self.others}


def overview(seen: Seen) -> Json:
    members = list(_members(seen))
    verdict = group_health(seen)
    return {
        "at": seen.at,
        "group": text(seen.own, "group"),
        "self": text(seen.own, "member"),
        "version": text(seen.own, "version"),
        "level": verdict.level,
        "remarks": [asdict(remark) for remark in verdict.remarks],
        "members": members,
        "parts": parts(seen),
        "links": list(_links(seen, {str(member["member"]) for member in members})),
        "views": [_view(row) for row in rows(seen.own, "views")[-RECENT_VIEWS:]],
        "events": [_event(row) for row in rows(seen.own, "events")[-RECENT_EVENTS:]],
        "counters": list(_counters(seen)),
    }


# Members


def _members(seen: Seen) -> Iterator[Json]:
    known: dict[str, Json] = {}
    for member, stats in seen.answers.items():
        known[member] = _answered(member, stats, seen)
    reported = {text(peer, "member"): peer for peer in rows(seen.own, "peers")}
    for stats in seen.answers.values():
        for row in rows(stats, "view", "members"):
            member = text(row, "member")
            known.setdefault(member, _unanswered(member, row, reported.get(member), stats))
    for member, name in seen.lost.items():
        known.setdefault(member, _unanswered(member, {"name": name}, None, None))
    yield from sorted(known.values(), key=lambda entry: (str(entry["name"]), str(entry["member"])))


def _answered(member: str, stats: Stats, seen: Seen) -> Json:
    growth = seen.growth.get(member, Growth())
    return {
        "member": member,
        "name": text(stats, "name") or member,
        "endpoint": text(stats, "endpoint"),
        "source": "self" if stats is seen.own else "polled",
        "view": text(stats, "view", "id"),
        "primary": boolean(stats, "view", "primary"),
        "coordinator": is_coordinator(stats, member),
        "level": _level(member, stats, seen),
        "position": integer(stats, "log", "position"),
        "stable": integer(stats, "log", "stable"),
        "holdback": integer(stats, "log", "holdback"),
        "in_flight": integer(stats, "log", "in_flight"),
        "window": round(window_fill(stats), 3),
        "queue": {"messages": integer(stats, "queue", "messages"), "paused": boolean(stats, "queue", "paused")},
        "rates": {name: number(stats, "rates", name) for name in ("sent_per_s", "delivered_per_s", "bytes_per_s")},
        "latency": {name: number_or_none(stats, "latency", name) for name in ("median_us", "p99_us")},
        "repair_share": round(growth.repair_share, 4),
        "suspects": texts(stats, "suspects"),
        "busy": texts(stats, "busy"),
        "faults": texts(stats, "faults"),
        "uptime_s": number(stats, "uptime_s"),
        "memory_bytes": integer(stats, "memory_bytes"),
    }


def _level(member: str, stats: Stats, seen: Seen) -> Level:
    """The level of one member. A lag is attributed to the member that is behind, not to the one that is ahead."""
    stalled_s = seen.stalled_s if stats is seen.own else 0.0
    level = health(without_peers(stats), stalled_s, seen.growth.get(member)).level
    is_primary = boolean(stats, "view", "primary")
    ahead = max(integer(other, "log", "position") for other in seen.answers.values())
    is_late = is_primary and ahead - integer(stats, "log", "position") >= FAR_BEHIND
    return Level.WATCH if is_late and level is Level.GOOD else level


def without_peers(stats: Stats) -> Stats:
    return {**stats, "peers": ()}


def _unanswered(member: str, row: Stats, reported: Stats | None, stats: Stats | None) -> Json:
    """A known member that did not answer the poll; its admin interface may simply be disabled."""
    view: Json = {"view": "", "primary": None, "coordinator": False}
    if stats is not None:
        is_primary = boolean(stats, "view", "primary")
        view = {"view": text(stats, "view", "id"), "primary": is_primary, "coordinator": is_coordinator(stats, member)}
    return {
        "member": member,
        "name": text(row, "name") or member,
        "endpoint": text(row, "endpoint"),
        "source": "silent" if stats is None else "reported",
        "level": Level.NOTE if stats is not None else Level.WATCH,
        "position": integer(reported, "position") if reported is not None else None,
        "stable": integer(reported, "stable") if reported is not None else None,
        **view,
    }


def is_coordinator(stats: Stats, member: str) -> bool:
    """Figures may name the coordinator without its incarnation; then the oldest member of that name is meant."""
    named = text(stats, "view", "coordinator")
    if not named or named == member:
        return bool(named)
    found = [text(row, "member") for row in rows(stats, "view", "members") if text(row, "name") == named]
    return bool(found) and found[0] == member


# Parts and links


def parts(seen: Seen) -> list[Json]:
    """Members grouped by the view that they report. One that did not answer stays in the view where others list it."""
    by_view: dict[str, list[str]] = {}
    for member, stats in seen.answers.items():
        by_view.setdefault(text(stats, "view", "id"), []).append(member)
    placed = {member for found in by_view.values() for member in found}
    made: list[Json] = []
    for view, found in by_view.items():
        stats = seen.answers[found[0]]
        seniority = [text(row, "member") for row in rows(stats, "view", "members")]
        everybody = sorted(
            {*found, *(member for member in seniority if member not in placed)},
            key=lambda member: (member not in seniority, seniority.index(member) if member in seniority else 0, member),
        )
        made.append({"view": view, "primary": boolean(stats, "view", "primary"), "members": everybody})
    return sorted(made, key=lambda part: (not part["primary"], str(part["view"])))


def _links(seen: Seen, known: set[str]) -> Iterator[Json]:
    """One entry per sender and receiver between which frames are missing now, as the receiver reports it."""
    for receiver, stats in seen.answers.items():
        for row in rows(stats, "multicast", "receivers"):
            sender, missing = text(row, "member"), integer(row, "missing")
            if sender in known and missing:
                yield {"from": sender, "to": receiver, "missing": missing}


# Remarks


def group_health(seen: Seen) -> Health:
    own = health(seen.own, seen.stalled_s, seen.growth.get(text(seen.own, "member")))
    said = [remark for remark in own.remarks if remark.level is not Level.GOOD]
    others = [remark for remark in _others_remarks(seen) if remark.text not in {known.text for known in said}]
    return sorted_by_weight([*_partition_remarks(seen), *said, *others], _group_is_well(seen))


def _group_is_well(seen: Seen) -> Remark:
    size = len(rows(seen.own, "view", "members"))
    return Remark(Level.GOOD, f"All is well: {size} members, one primary view, one log.")


def _partition_remarks(seen: Seen) -> Iterator[Remark]:
    found = parts(seen)
    names = {str(member["member"]): str(member["name"]) for member in _members(seen)}
    if len(found) > 1:
        listed = " | ".join(
            ", ".join(names.get(member, member) for member in _listed(part)) + (" (primary)" if part["primary"] else "")
            for part in found
        )
        yield Remark(
            Level.BAD,
            f"The group is in {len(found)} parts: {listed}. " + _who_survives(found),
            "For a second or two this is a view change in progress. If it lasts, members cannot reach one another: "
            "repair the network, and the parts merge by themselves.",
        )
    merged = _latest_merge(seen)
    if merged is not None and len(found) == 1:
        yield merged
    for member, name in seen.lost.items():
        yield Remark(
            Level.WATCH,
            f"{name} ({member}) was a member and does not answer: it has stopped or is unreachable.",
            "If it stopped, restart it: it joins as a new member, and with its journal it fetches only what it misses.",
        )


def _listed(part: Json) -> list[str]:
    found = part["members"]
    return [str(member) for member in found] if isinstance(found, list) else []


def _who_survives(found: list[Json]) -> str:
    primary = sum(1 for part in found if part["primary"])
    if primary == 1:
        return "The primary part continues; in the others total-order messages wait."
    if primary == 0:
        return "No part is primary, so total-order messages wait everywhere until enough members are in one view again."
    return "More than one part is primary: expected only with partitions='all', where each part orders messages alone."


def _latest_merge(seen: Seen) -> Remark | None:
    for row in reversed(rows(seen.own, "views")):
        ago = seen.at - number(row, "at")
        if items(row, "merged_from") and 0 <= ago <= RECENT_MERGE_S:
            return Remark(
                Level.NOTE,
                f"View {text(row, 'id')} merged several views {ago:.0f} s ago: a partition has healed, or a member "
                "joined. Members that were behind have fetched what they missed.",
            )
    return None


def _others_remarks(seen: Seen) -> Iterator[Remark]:
    """The remarks of the other members, without those that `_partition_remarks` makes once for all."""
    is_in_one_view = len(parts(seen)) == 1
    for member, stats in sorted(seen.others.items()):
        for remark in health(without_peers(stats), 0.0, seen.growth.get(member)).remarks:
            is_repeated = remark.level in (Level.GOOD, Level.NOTE) or (remark.level is Level.BAD and not is_in_one_view)
            if not is_repeated:
                yield Remark(remark.level, f"{text(stats, 'name') or member}: {remark.text}", remark.advice)


# What the page shows of the serving member


def _view(row: Stats) -> Json:
    return {
        "at": number(row, "at"),
        "id": text(row, "id"),
        "members": [_name(member) for member in items(row, "members")],
        "primary": boolean(row, "primary"),
        "merged_from": [_name(view) for view in items(row, "merged_from")],
    }


def _name(member: object) -> str:
    return text(member, "name") if isinstance(member, Mapping) else text({"": member}, "")


def _event(row: Stats) -> Json:
    return {"at": number(row, "at"), "kind": text(row, "kind"), "text": text(row, "text")}


def _counters(seen: Seen) -> Iterator[Json]:
    growth = seen.growth.get(text(seen.own, "member"), Growth())
    for name, value in counters(seen.own).items():
        known = KNOWN.get(name)
        per_s = (growth.counts or {}).get(name, 0) / growth.seconds if growth.seconds else 0.0
        yield {
            "name": name,
            "value": value,
            "per_s": round(per_s, 1),
            "nature": known.nature if known else "",
            "meaning": known.meaning if known else "",
        }
