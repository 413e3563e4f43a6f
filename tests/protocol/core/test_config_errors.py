"""Every bad setting is answered with its own name, its value, and what would have been allowed.

The tables list every setting of a config, and a test compares them with the class, so that none is forgotten.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from motet.errors import ConfigError, MotetError
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.member import MemberConfig
from motet.protocol.multicast import MulticastConfig
from motet.protocol.unicast import UnicastConfig

Table = dict[str, tuple[int, int]]
ANY_TIME = 1 << 62

# What is allowed while everything else has its default: least and most.
UNICAST: Table = {
    "capacity": (1, 1 << 20),
    "body_bytes": (64, 65_507),
    "backlog_bytes": (1, 1 << 40),
    "ack_min_ns": (0, 10 * SECOND),
    "ack_max_ns": (5 * MILLISECOND, 60 * SECOND),
    "xmit_interval_ns": (MILLISECOND, 60 * SECOND),
    "initial_rtt_ns": (1, 60 * SECOND),
    "min_repair_ns": (1, 500 * MILLISECOND),
    "repair_burst": (1, 1 << 20),
    "request_limit": (1, 512),
    "repair_bytes": (1, 1 << 40),
    "repair_rate": (1, 1 << 40),
    "conn_expiry_ns": (0, ANY_TIME),
    "conn_close_ns": (0, ANY_TIME),
    "give_up_ns": (500 * MILLISECOND, ANY_TIME),
    "sync_timeout_ns": (2 * MILLISECOND, ANY_TIME),
    "max_peers": (1, 1 << 20),
    "remembered_peers": (0, 1 << 20),
}
MULTICAST: Table = {
    "capacity": (1, 1 << 20),
    "body_bytes": (64, 65_507),
    "backlog_bytes": (1, 1 << 40),
    "xmit_interval_ns": (MILLISECOND, 60 * SECOND),
    "initial_rtt_ns": (1, 60 * SECOND),
    "min_repair_ns": (1, 500 * MILLISECOND),
    "repair_burst": (1, 1 << 20),
    "request_limit": (1, 512),
    "repair_bytes": (1, 1 << 40),
    "repair_rate": (1, 1 << 40),
    "early_frames": (0, 1 << 20),
    "receive_bytes": (0, 1 << 40),
}
MEMBER: Table = {"frame_bytes": (256, 65_507)}
TABLES: list[tuple[Callable[..., object], Table]] = [
    (UnicastConfig, UNICAST),
    (MulticastConfig, MULTICAST),
    (MemberConfig, MEMBER),
]
ROWS = [
    pytest.param(config, name, least, most, id=f"{getattr(config, '__name__', '')}.{name}")
    for config, table in TABLES
    for name, (least, most) in table.items()
]
# A limit that only holds together with another setting cannot be reached alone.
TIED = {"ack_min_ns": {"ack_max_ns": 60 * SECOND}, "xmit_interval_ns": {"min_repair_ns": 1, "give_up_ns": ANY_TIME}}


@pytest.mark.parametrize(("config", "table"), TABLES[:2])
def test_every_setting_has_its_row_here(config: Any, table: Table) -> None:
    assert {setting.name for setting in fields(config) if setting.type != "bool"} == table.keys()


@pytest.mark.parametrize(("config", "name", "least", "most"), ROWS)
def test_a_value_below_what_is_allowed_is_named(
    config: Callable[..., object], name: str, least: int, most: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**{name: least - 1})
    assert str(caught.value).startswith(f"{name} = {least - 1} ")
    assert f"{least} to {most}" in str(caught.value)


@pytest.mark.parametrize(("config", "name", "least", "most"), ROWS)
def test_a_value_above_what_is_allowed_is_named(
    config: Callable[..., object], name: str, least: int, most: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**{name: most + 1})
    assert str(caught.value).startswith(f"{name} = {most + 1} ")
    assert f"{least} to {most}" in str(caught.value)


@pytest.mark.parametrize(("config", "name", "least", "most"), ROWS)
def test_the_limits_themselves_are_allowed(config: Callable[..., object], name: str, least: int, most: int) -> None:
    others = TIED.get(name, {}) if config is UnicastConfig else {}
    if config is MulticastConfig and name == "xmit_interval_ns":
        others = {"min_repair_ns": 1}
    for value in (least, most):
        assert getattr(config(**{name: value, **others}), name) == value


def test_an_ack_cannot_be_due_before_it_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"ack_max_ns = 1000000 is outside what is allowed: 5000000 to 60000000000"):
        UnicastConfig(ack_max_ns=MILLISECOND)


def test_a_config_error_is_a_value_error_that_is_not_worth_a_retry() -> None:
    with pytest.raises(ValueError, match="capacity") as caught:
        MulticastConfig(capacity=0)
    assert isinstance(caught.value, MotetError)
    assert not caught.value.retryable


@pytest.mark.parametrize("config", [UnicastConfig, MulticastConfig])
@pytest.mark.parametrize(("capacity", "threshold"), [(1, 1), (3, 1), (4, 1), (8, 2), (256, 64)])
def test_a_quarter_of_the_window_is_acked_at_once(config: Callable[..., Any], capacity: int, threshold: int) -> None:
    assert config(capacity=capacity).ack_threshold == threshold


@pytest.mark.parametrize("frame_bytes", [256, 1_400, 60_000, 65_048, 65_049, 65_507])
def test_every_allowed_datagram_size_gives_usable_settings(frame_bytes: int) -> None:
    config = MemberConfig(frame_bytes=frame_bytes)
    assert config.unicast_sized.body_bytes == config.multicast_sized.body_bytes < frame_bytes


def test_sizing_changes_nothing_but_the_body() -> None:
    config = MemberConfig(frame_bytes=1_400, unicast=UnicastConfig(capacity=7), multicast=MulticastConfig(capacity=9))
    assert (config.unicast_sized.capacity, config.multicast_sized.capacity) == (7, 9)
    assert config.unicast.body_bytes == UnicastConfig().body_bytes
