"""The overview of a group, from members that agree, that are parted, that are silent, and that lie."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from motet.admin.health import Growth, Level
from motet.admin.overview import Seen, group_health, overview, parts
from motet.admin.poller import Poller
from motet.admin.server import AdminConfig, AdminServer
from motet.log.service.validated_json import from_json, to_json
from tests.admin.fakes import NAMES, FakeMember, member_of, stats_of


def seen(*stats: dict[str, Any], **more: Any) -> Seen:
    own, *others = stats
    return Seen(own, {entry["member"]: entry for entry in others}, at=time.time(), **more)


def draw(*stats: dict[str, Any], **more: Any) -> dict[str, Any]:
    return overview(seen(*stats, **more))


def group(view: tuple[str, ...] = NAMES, **changes: Any) -> list[dict[str, Any]]:
    return [stats_of(name, view, **changes) for name in view]


def member(found: dict[str, Any], name: str) -> dict[str, Any]:
    (entry,) = [entry for entry in found["members"] if entry["name"] == name]
    assert isinstance(entry, dict)
    return entry


def test_a_whole_group_is_one_part() -> None:
    found = draw(*group())
    assert found["level"] is Level.GOOD
    assert found["parts"] == [{"view": "7@000a", "primary": True, "members": [member_of(name) for name in NAMES]}]
    assert [(entry["name"], entry["source"]) for entry in found["members"]] == [
        ("alto", "self"),
        *((name, "polled") for name in NAMES[1:]),
    ]
    assert [entry["name"] for entry in found["members"] if entry["coordinator"]] == ["alto"]


def test_members_that_do_not_answer_are_drawn_from_what_is_told() -> None:
    found = draw(stats_of())
    assert len(found["members"]) == 5
    assert member(found, "bass")["source"] == "reported"
    assert member(found, "bass")["position"] == 120_490
    assert len(found["parts"]) == 1
    assert found["level"] is Level.GOOD


def test_a_partition_says_who_goes_on() -> None:
    major, minor = group(NAMES[:3], number=8), group(NAMES[3:], number=9, primary=False)
    for own in (major[0], minor[0]):
        rest = [entry for entry in major + minor if entry is not own]
        found = group_health(seen(own, *rest))
        assert found.level is Level.BAD
        text = str(found.remarks[0])
        assert "in 2 parts: alto, bass, cello (primary) | drum, erhu." in text
        assert "The primary part continues" in text


def test_parts_without_a_primary_and_with_two() -> None:
    lost = seen(*group(NAMES[:2], number=8, primary=False), *group(NAMES[2:], number=9, primary=False))
    assert "No part is primary" in str(group_health(lost).remarks[0])
    both = seen(*group(NAMES[:2], number=8), *group(NAMES[2:], number=9))
    assert "partitions='all'" in str(group_health(both).remarks[0])


def test_a_part_that_sees_only_itself_knows_that_it_is_not_primary() -> None:
    found = group_health(seen(*group(NAMES[3:], number=9, primary=False), lost={member_of("alto"): "alto"}))
    assert found.level is Level.BAD
    assert "not primary" in found.remarks[0].text
    assert any("alto (alto#000a) was a member and does not answer" in remark.text for remark in found.remarks)


def test_a_fresh_merge_is_told_for_a_minute() -> None:
    members = group()
    members[0]["views"].append(
        {"at": time.time() - 5, "id": "9@000a", "members": list(NAMES), "primary": True, "merged_from": ["8@a", "8@b"]}
    )
    assert "View 9@000a merged several views 5 s ago: a partition has healed" in str(
        group_health(seen(*members)).remarks[1]
    )
    members[0]["views"][-1]["at"] -= 100
    assert len(group_health(seen(*members)).remarks) == 1


def test_what_is_wrong_elsewhere_is_told_with_its_name() -> None:
    members = group()
    members[2]["queue"]["paused"] = True
    (remark,) = group_health(seen(*members)).remarks
    assert remark.level is Level.WATCH
    assert remark.text.startswith("cello: Back-pressure: the application reads messages")


def test_links_show_what_is_missing_where() -> None:
    members = group()
    members[1]["multicast"]["receivers"][0]["missing"] = 4
    found = draw(*members, growth={member_of("alto"): Growth(10, {"frame_sent": 90, "frame_resent": 10})})
    assert found["links"] == [{"from": member_of("alto"), "to": member_of("bass"), "missing": 4}]
    assert member(found, "alto")["repair_share"] == 0.1


def test_whoever_is_in_another_part_is_not_drawn_twice() -> None:
    """The old view still lists members that have moved on."""
    moved = group(NAMES[:3], number=8)
    found = parts(seen(stats_of("erhu", NAMES, number=7), *moved))
    assert [part["members"] for part in found] == [
        [member_of(name) for name in NAMES[3:]],
        [member_of(name) for name in NAMES[:3]],
    ]


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"view": [], "log": "x", "multicast": {"receivers": {"a": 1}}, "views": [[], {"members": 7}], "events": [{}]},
        {"view": {"members": [{"member": ["x"]}, 3]}, "peers": [None], "counters": {"x": 10**400}, "rates": None},
        {"name": "x" * 10_000, "faults": ["y" * 10_000] * 10_000, "latency": {"median_us": float("nan")}},
    ],
)
def test_nonsense_of_a_peer_breaks_nothing_and_stays_small(nonsense: dict[str, Any]) -> None:
    stats = {**stats_of("bass"), **nonsense}
    stats["member"] = "bass#000b"
    for found in (overview(Seen(stats_of(), {"bass#000b": stats})), overview(Seen(stats))):
        data = to_json(found)
        assert len(data) < 200_000
        assert b"NaN" not in data
        assert isinstance(from_json(data), dict)


# With real servers


@pytest.fixture
def members() -> Iterator[list[FakeMember]]:
    """Five admin faces that know one another's addresses."""
    found = [FakeMember(entry) for entry in group()]
    with ExitStack() as stack:
        servers = [stack.enter_context(AdminServer(fake, AdminConfig(token="token-of-all"))) for fake in found]
        for fake in found:
            for peer in fake.figures["peers"]:
                place = [member_of(name) for name in NAMES].index(peer["member"])
                peer["admin"] = str(servers[place].endpoint)
        yield found


@pytest.fixture
def poller(members: list[FakeMember]) -> Iterator[Poller]:
    made = Poller(members[0].stats, interval_s=0.0)
    yield made
    made.close()


def test_a_member_asks_the_others(members: list[FakeMember], poller: Poller) -> None:
    members[3].change(log={"position": 5})
    found: dict[str, Any] = poller.overview()
    assert [entry["source"] for entry in found["members"]] == ["self"] + ["polled"] * 4
    assert member(found, "drum")["position"] == 5


def test_both_sides_of_a_cut_are_seen_after_the_view_has_changed(members: list[FakeMember], poller: Poller) -> None:
    poller.overview()
    for fake in members:
        name = fake.figures["name"]
        side = NAMES[:3] if name in NAMES[:3] else NAMES[3:]
        fake.figures = stats_of(name, side, number=8 + len(side), primary=len(side) == 3)
    found: dict[str, Any] = poller.overview()
    assert [part["primary"] for part in found["parts"]] == [True, False]
    assert found["level"] is Level.BAD


def test_somebody_else_at_the_address_is_not_drawn(members: list[FakeMember], poller: Poller) -> None:
    members[1].change(group="another group")
    members[2].figures = {"hello": "world"}
    found: dict[str, Any] = poller.overview()
    assert member(found, "bass")["source"] == "reported"
    assert member(found, "cello")["source"] == "reported"


def test_whoever_is_silent_is_left_alone_for_a_while(members: list[FakeMember], poller: Poller) -> None:
    members[1].error = ZeroDivisionError()
    found: dict[str, Any] = poller.overview()
    assert member(found, "bass")["source"] == "reported"
    members[1].error = None
    found = poller.overview()
    assert member(found, "bass")["source"] == "reported"
    for peer in poller._peers.values():
        peer.ask_at = 0.0  # the while is over
    found = poller.overview()
    assert member(found, "bass")["source"] == "polled"


def test_a_restarted_member_replaces_its_old_life(members: list[FakeMember], poller: Poller) -> None:
    poller.overview()
    members[1].change(member="bass#ffff")
    for fake in members:
        view = fake.figures["view"]["members"]
        fake.change(view={"members": [row for row in view if row["name"] != "bass"]}, peers=[])
    found: dict[str, Any] = poller.overview()
    assert [entry["member"] for entry in found["members"] if entry["name"] == "bass"] == ["bass#ffff"]


def test_one_poll_serves_all_dashboards(members: list[FakeMember]) -> None:
    poller = Poller(members[0].stats, interval_s=3600)
    try:
        assert poller.overview() is poller.overview()
    finally:
        poller.close()


def test_growth_is_measured_between_polls(members: list[FakeMember], poller: Poller) -> None:
    poller.overview()
    counts = members[1].figures["counters"]
    members[1].change(counters={"frame_sent": counts["frame_sent"] + 50, "frame_resent": counts["frame_resent"] + 50})
    assert member(poller.overview(), "bass")["repair_share"] == 0.5
