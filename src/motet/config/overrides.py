"""The settings as keyword arguments, for type checkers and editors. By `python -m tests.config.overrides`."""

from __future__ import annotations

from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """What `Config.local`, `lan` and `wan` take, as people write it: `heartbeat="250ms"`, `frame_bytes="64KiB"`."""

    frame_bytes: int | str
    packet_bytes: int | str
    window_frames: int
    order_window_frames: int
    order_in_flight_frames: int
    order_fast_path_members: int
    backlog_bytes: int | str
    pack_messages: bool
    transport: Literal["unicast", "multicast"]
    multicast_group: str
    multicast_port: int
    multicast_ttl: int
    multicast_interface: str
    socket_buffer_bytes: int | str
    wakeup_datagrams: int
    spin: str
    queue_bytes: int | str
    state_buffer_bytes: int | str
    xmit_interval: str
    min_repair: str
    initial_rtt: str
    ack_min: str
    ack_max: str
    conn_expiry: str
    conn_close: str
    give_up: str
    sync_timeout: str
    heartbeat: str
    suspect: str
    verify: str
    suspect_max: str
    verify_attempts: int
    busy_max: str
    liveness_process: bool
    seeds: str | list[str] | tuple[str, ...]
    discovery_multicast: str
    discovery_dns: str
    discovery_directory: str
    discovery_eager: str
    discovery_interval: str
    discovery_former: str
    may_bootstrap: bool
    bootstrap_without_lookup: bool
    bootstrap_after: str
    merge_gather: str
    merge_leader_timeout: str
    view_retry: str
    view_answer: str
    view_answer_max: str
    partitions: Literal["primary", "all"]
    static_quorum: int
    strategy: Literal["window", "continuous"]
    order_ask: str
    order_progress: str
    state_chunk_bytes: int | str
    state_window_chunks: int
    state_retry: str
    snapshot_timeout: str
    keys: str | list[str] | tuple[str, ...]
    insecure: bool
    token: str
    replay_window: int
    admin_bind: str
    log_bind: str
    trace_file: str
    journal_fsync: Literal["interval", "always", "never"]
    journal_interval: str
    journal_segment_bytes: int | str
    retention_bytes: int | str
    retention_age: str


class PresetAndSettings(Settings, total=False):
    """What `Config.load` takes: the settings, and the preset that they begin with."""

    preset: Literal["local", "lan", "wan"]
