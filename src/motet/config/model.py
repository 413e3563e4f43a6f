"""All settings of a member in one flat class. The defaults are those of one data centre (`lan`).

A config is validated when it is made and is immutable. `presets` gives the reason for each value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Unpack

from motet.config.overrides import PresetAndSettings, Settings
from motet.config.settings import (
    check,
    choice,
    count,
    duration,
    flag,
    key_of,
    outside,
    sealed_off,
    setting_of,
    size,
    spell,
    text,
    texts,
)
from motet.config.sources import gather, named_file
from motet.errors import ConfigError
from motet.log.journal.config import Fsync, JournalConfig
from motet.protocol.core.identity import Endpoint, is_loopback, parse_endpoint
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES
from motet.protocol.core.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from motet.protocol.member import MemberConfig
from motet.protocol.membership import (
    DetectorConfig,
    DiscoveryConfig,
    DnsName,
    EngineConfig,
    IpMulticast,
    MembershipConfig,
    SharedDirectory,
    StaticSeeds,
    TransferConfig,
)
from motet.protocol.multicast import MulticastConfig
from motet.protocol.ordering import OrderingConfig
from motet.protocol.ordering.config import MOST_IN_FLIGHT
from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.unicast import UnicastConfig
from motet.protocol.wire.seal import SEAL_OVERHEAD, Keyring

Source = StaticSeeds | IpMulticast | DnsName | SharedDirectory

# Constraints (setting, factor, other): the setting must be at least factor times the other one.
TIES = (
    ("suspect_ns", 2, "heartbeat_ns"),
    ("discovery_interval_ns", 1, "discovery_eager_ns"),
    ("discovery_former_ns", 1, "discovery_interval_ns"),
    ("merge_leader_timeout_ns", 1, "merge_gather_ns"),
    ("view_answer_ns", 2, "view_retry_ns"),
    ("xmit_interval_ns", 1, "min_repair_ns"),
    ("give_up_ns", 1, "xmit_interval_ns"),
    ("sync_timeout_ns", 1, "min_repair_ns"),
    ("ack_max_ns", 1, "ack_min_ns"),
    ("order_in_flight_frames", 1, "order_window_frames"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one member. `local`, `lan` and `wan` begin with a preset and take settings as people write them.

    It is checked when it is made, and never changes.
    """

    # Datagrams. IP fragments a frame of 32 000 bytes into 22 packets. A switched network loses hardly any of them, and
    # Python spends as much time on a small datagram as on a large one.
    frame_bytes: int = size(32_000, 512, MAX_DATAGRAM_BYTES, "Largest datagram, including all headers and the seal.")
    packet_bytes: int = size(
        1_400,
        0,
        MAX_DATAGRAM_BYTES,
        "Size of the segments into which larger datagrams are cut where packets are lost; 0 never cuts.",
    )
    window_frames: int = count(
        256, 1, 1 << 20, "Send window: frames in flight per stream; when it is full, further sends wait in the backlog."
    )
    order_window_frames: int = count(
        256,
        1,
        MOST_IN_FLIGHT,
        "Own ordered frames in flight that this member has not delivered yet; further sends wait.",
    )
    order_in_flight_frames: int = count(
        1_024,
        1,
        MOST_IN_FLIGHT,
        "Own ordered frames in flight that some member may not have delivered yet; further sends wait.",
    )
    order_fast_path_members: int = count(
        5,
        0,
        64,
        (
            "Views of up to this many members broadcast proposals while lightly loaded, which saves one message "
            "delay. 0 disables it."
        ),
    )
    backlog_bytes: int = size(
        32 << 20, 1, 1 << 40, "Bytes per stream that may wait for space in the send window; beyond that, sends wait."
    )
    pack_messages: bool = flag(
        True,
        (
            "Whether messages that wait for the send window share a frame; false sends one frame per message and "
            "is slower."
        ),
    )
    transport: str = choice(
        ("unicast", "multicast"),
        "How a multicast is sent: one datagram per member (unicast), or one IP multicast datagram for all.",
    )
    multicast_group: str = text("239.192.77.85", "IP multicast group that transport = multicast sends to.")
    multicast_port: int = count(
        7885, 1, 0xFFFF, "UDP port of the IP multicast group that transport = multicast sends to."
    )
    multicast_ttl: int = count(1, 0, 255, "Number of routers that IP multicast may pass; 0 keeps it on this machine.")
    multicast_interface: str = text(
        "", "Address of the network interface for IP multicast; empty lets the operating system choose."
    )
    socket_buffer_bytes: int = size(
        8 << 20,
        4 << 10,
        1 << 30,
        "Receive and send buffer requested from the operating system; it should hold one full send window.",
    )
    wakeup_datagrams: int = count(
        32, 1, 1 << 16, "Datagrams received per wake-up before timers and sends get their turn."
    )
    spin_ns: int = duration(
        0,
        0,
        SECOND,
        "With thread=False: how long to keep polling the socket for an answer before the event loop sleeps.",
    )

    # The application
    queue_bytes: int = size(
        32 << 20,
        1 << 10,
        1 << 40,
        "Deliveries that may wait for a slow application; beyond that, back-pressure makes senders wait.",
    )
    state_buffer_bytes: int = size(
        64 << 20,
        0,
        1 << 40,
        "Deliveries buffered while a joining member receives its state; beyond that, senders wait.",
    )

    # Repair and acks
    xmit_interval_ns: int = duration(
        500 * MILLISECOND,
        MILLISECOND,
        MINUTE,
        "Longest interval between two retransmission requests for the same lost frames.",
    )
    min_repair_ns: int = duration(
        2 * MILLISECOND,
        MICROSECOND,
        SECOND,
        "Shortest interval between two retransmission requests for the same lost frames.",
    )
    initial_rtt_ns: int = duration(
        10 * MILLISECOND, MICROSECOND, MINUTE, "Round trip that is assumed until the first measurement."
    )
    ack_min_ns: int = duration(5 * MILLISECOND, 0, 10 * SECOND, "Shortest interval between two acks of one connection.")
    ack_max_ns: int = duration(20 * MILLISECOND, 0, MINUTE, "Longest time that an ack of one connection is delayed.")
    conn_expiry_ns: int = duration(
        MINUTE, 0, 365 * DAY, "Time without traffic after which a unicast connection starts to close; 0 keeps it open."
    )
    conn_close_ns: int = duration(
        30 * SECOND, 0, 365 * DAY, "Time that a closing unicast connection is remembered before its state is freed."
    )
    give_up_ns: int = duration(
        MINUTE, MILLISECOND, 365 * DAY, "Silence of a peer after which unacknowledged messages to it fail."
    )
    # Below the 60 s that an admin operation waits, so that `motet probe ... sync` always says how it ended.
    sync_timeout_ns: int = duration(
        5 * SECOND,
        MILLISECOND,
        50 * SECOND,
        "Time after which an unanswered SYNC, which resynchronises a unicast connection, fails.",
    )

    # Failure detection
    heartbeat_ns: int = duration(
        250 * MILLISECOND, MILLISECOND, MINUTE, "Longest time that a member sends nothing; a heartbeat follows."
    )
    # The formula stands in DetectorConfig and, for users, below the table in docs/reference/config.md.
    suspect_ns: int = duration(
        1_250 * MILLISECOND,
        2 * MILLISECOND,
        10 * MINUTE,
        "Silence after which a member is probed; the formula below counts the heartbeats missed.",
    )
    verify_ns: int = duration(
        500 * MILLISECOND,
        MILLISECOND,
        10 * MINUTE,
        "The first verify_attempts probes are spread over this time; more follow where loss is measured.",
    )
    suspect_max_ns: int = duration(
        30 * SECOND,
        3 * MILLISECOND,
        HOUR,
        "Longest silence before suspicion, however much is lost: upper bound of the formula below.",
    )
    verify_attempts: int = count(
        4, 1, 100, "Fewest unanswered probes before suspicion; the formula below counts each of them."
    )

    busy_max_ns: int = duration(
        MINUTE,
        0,
        10 * MINUTE,
        "Longest time that others keep a member that is alive but busy, such as by code that holds the GIL.",
    )
    liveness_process: bool = flag(
        True,
        ("Whether a small helper process tells others that this member is alive while its own process is blocked."),
    )

    # Discovery
    seeds: tuple[str, ...] = texts("Endpoints where members may be found, each HOST:PORT.")
    discovery_multicast: str = text(
        "", "IP multicast group over which members find each other, GROUP:PORT; empty disables it."
    )
    discovery_dns: str = text("", "DNS name that has an address record per member, NAME:PORT; empty disables it.")
    discovery_directory: str = text(
        "", "Shared directory in which each member registers its endpoint; empty disables it."
    )
    discovery_eager_ns: int = duration(
        100 * MILLISECOND,
        MILLISECOND,
        MINUTE,
        "First interval between two discovery rounds; it grows up to discovery_interval.",
    )
    discovery_interval_ns: int = duration(
        SECOND,
        MILLISECOND,
        HOUR,
        "Longest interval between discovery rounds; bounds how late a healed partition is noticed.",
    )
    discovery_former_ns: int = duration(
        10 * MINUTE, MILLISECOND, DAY, "How long endpoints of former members are still probed in discovery rounds."
    )

    # Views
    may_bootstrap: bool = flag(True, "Whether this process may bootstrap a new group when discovery finds no member.")
    bootstrap_without_lookup: bool = flag(
        False, "Allow a bootstrap while look-ups of discovery_dns or discovery_directory fail: at one member only."
    )
    bootstrap_after_ns: int = duration(
        1_200 * MILLISECOND,
        0,
        10 * MINUTE,
        "Time without finding any member after which this process bootstraps a new group.",
    )
    merge_gather_ns: int = duration(
        100 * MILLISECOND,
        0,
        MINUTE,
        "Delay between the discovery of a different view and the merge, so that further views can take part.",
    )
    merge_leader_timeout_ns: int = duration(
        SECOND,
        0,
        10 * MINUTE,
        "How long a coordinator waits for the expected merge leader before it leads the merge itself.",
    )
    # The wait for an answer in a view change or a merge: round trip + 4 deviations + tries(loss) x view_retry, bounded.
    view_retry_ns: int = duration(
        50 * MILLISECOND,
        MILLISECOND,
        10 * SECOND,
        "Interval at which unanswered frames of a view change or merge are sent again.",
    )
    view_answer_ns: int = duration(
        500 * MILLISECOND,
        2 * MILLISECOND,
        10 * MINUTE,
        "Shortest wait for an answer in a view change: lower bound of round trip + tries x view_retry.",
    )
    view_answer_max_ns: int = duration(
        20 * SECOND,
        2 * MILLISECOND,
        HOUR,
        "Longest wait for an answer in a view change: upper bound of round trip + tries x view_retry.",
    )
    partitions: str = choice(
        ("primary", "all"), "Which sides of a partition keep ordering messages: only the primary component, or all."
    )
    static_quorum: int = count(
        0, 0, 1 << 16, "Number of members that makes a view primary; 0 requires a majority of the last primary view."
    )

    # Total order
    strategy: str = choice(
        ("window", "continuous"),
        ("Dissemination strategy for ordered frames: window (reliable multicast) or continuous (plain datagrams)."),
    )
    order_ask_ns: int = duration(
        50 * MILLISECOND, MILLISECOND, MINUTE, "Delay after which missing proposals are requested again."
    )
    order_progress_ns: int = duration(
        10 * MILLISECOND,
        MILLISECOND,
        MINUTE,
        "Interval at which members report their delivery progress, from which stability follows.",
    )

    # State transfer
    state_chunk_bytes: int = size(
        32_000, 256, 65_000, "Size of one chunk of a state transfer; it must fit into a datagram."
    )
    state_window_chunks: int = count(16, 1, 0xFFFF, "Chunks of a state transfer in flight to one joining member.")
    state_retry_ns: int = duration(
        50 * MILLISECOND, MILLISECOND, MINUTE, "Delay after which lost chunks of a state transfer are requested again."
    )

    # Snapshots
    snapshot_timeout_ns: int = duration(
        10 * SECOND, MILLISECOND, HOUR, "Time after which an incomplete snapshot fails."
    )

    # Security
    keys: tuple[str, ...] = texts(
        "Keys of the group, each KEY or ID:KEY; the first one seals datagrams, all of them open datagrams.",
        is_secret=True,
    )
    insecure: bool = flag(False, "Whether a member without a key may bind to an address that other machines can reach.")
    token: str = text(
        "",
        "Bearer token that the admin and log services require; mandatory when they bind beyond loopback.",
        is_secret=True,
    )
    replay_window: int = count(1_024, 64, 65_536, "Datagrams per sender that are remembered to detect replays.")

    # Services
    admin_bind: str = text("", "Address of the admin, metrics and dashboard server, HOST:PORT; empty disables it.")
    log_bind: str = text("", "Address of the log service, HOST:PORT; empty disables it.")
    trace_file: str = text("", "File for trace events, ending in .jsonl, .arrow or .parquet; empty disables tracing.")

    # The journal
    journal_fsync: str = choice(
        ("interval", "always", "never"),
        "When appended bytes are forced to disk: at intervals, before every confirmation (always), or never.",
    )
    journal_interval_ns: int = duration(
        50 * MILLISECOND, MILLISECOND, HOUR, "Interval between two fsyncs with journal_fsync = interval."
    )
    journal_segment_bytes: int = size(
        64 << 20, 4 << 10, 1 << 30, "Size at which a segment of the journal is closed and the next one begins."
    )
    retention_bytes: int = size(0, 0, 1 << 60, "Journal size above which the oldest segments are deleted; 0 keeps all.")
    retention_age_ns: int = duration(
        0, 0, 10_000 * DAY, "Age above which segments of the journal are deleted; 0 keeps them regardless of age."
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field, getattr(self, field.name))
            if setting_of(field).is_secret:
                object.__setattr__(self, field.name, sealed_off(getattr(self, field.name)))
        for name, factor, other in TIES:
            self._check_tie(name, factor, other)
        self._check_addresses()
        self.keyring()
        self.member_config()  # raises ConfigError for whatever the layers below reject
        self.journal_config()

    def __deepcopy__(self, memo: object) -> Config:
        return self  # it is immutable, and a deep copy would lose its secrets

    # Constructors. Settings are given as people write them: heartbeat="250ms", frame_bytes="64KiB"

    @classmethod
    def local(cls, **overrides: Unpack[Settings]) -> Config:
        """Processes of one machine."""
        return cls(**gather(fields(cls), overrides={"preset": "local", **overrides}))

    @classmethod
    def lan(cls, **overrides: Unpack[Settings]) -> Config:
        """One data centre: the defaults."""
        return cls(**gather(fields(cls), overrides={"preset": "lan", **overrides}))

    @classmethod
    def wan(cls, **overrides: Unpack[Settings]) -> Config:
        """Several sites."""
        return cls(**gather(fields(cls), overrides={"preset": "wan", **overrides}))

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """What this file says, and nothing else."""
        return cls(**gather(fields(cls), path))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """What the environment says (variables MOTET_...), and nothing else."""
        return cls(**gather(fields(cls), environ=os.environ if environ is None else environ))

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Unpack[PresetAndSettings],
    ) -> Config:
        """Preset, then file, then environment, then arguments; later ones win. MOTET_CONFIG may name the file."""
        variables = os.environ if environ is None else environ
        return cls(**gather(fields(cls), path or named_file(variables), variables, overrides))

    # The configs of the layers below

    def member_config(
        self,
        seeds: Sequence[Endpoint] = (),
        *,
        wants_state: bool = False,
        needs_state: bool = False,
        waits_for_disk: bool = False,
        receive_bytes: int = 0,
    ) -> MemberConfig:
        """The config of a member that also discovers others at `seeds`.

        `wants_state`: it can receive a state. `needs_state`: it waits for one where no member has it.
        `waits_for_disk`: it reports to others only what its journal has on disk.
        `receive_bytes`: the size of its socket buffer, which is assumed for the other members, too.
        """
        seal_bytes = SEAL_OVERHEAD if self.keys else 0
        streams = {
            "capacity": self.window_frames,
            "backlog_bytes": self.backlog_bytes,
            "xmit_interval_ns": self.xmit_interval_ns,
            "initial_rtt_ns": self.initial_rtt_ns,
            "min_repair_ns": self.min_repair_ns,
        }
        return MemberConfig(
            frame_bytes=self.frame_bytes - seal_bytes,
            unicast=UnicastConfig(
                **streams,
                packs=self.pack_messages,
                ack_min_ns=self.ack_min_ns,
                ack_max_ns=self.ack_max_ns,
                conn_expiry_ns=self.conn_expiry_ns,
                conn_close_ns=self.conn_close_ns,
                give_up_ns=self.give_up_ns,
                sync_timeout_ns=self.sync_timeout_ns,
            ),
            multicast=MulticastConfig(**streams, packs=self.pack_messages, receive_bytes=receive_bytes),
            membership=self._membership(tuple(seeds), wants_state, needs_state),
            ordering=self._ordering(waits_for_disk),
            snapshot=SnapshotConfig(timeout_ns=self.snapshot_timeout_ns),
            packet_bytes=self.packet_bytes,
            state_buffer_bytes=self.state_buffer_bytes,
        )

    def journal_config(self) -> JournalConfig:
        return JournalConfig(
            fsync=Fsync(self.journal_fsync),
            interval_ns=self.journal_interval_ns,
            segment_bytes=self.journal_segment_bytes,
            retention_bytes=self.retention_bytes,
            retention_ns=self.retention_age_ns,
        )

    def keyring(self) -> Keyring | None:
        """The keys; None if datagrams are not sealed."""
        return Keyring.of(self.keys) if self.keys else None

    def check_bind(self, bind: Endpoint) -> None:
        """Without a key a member must bind to loopback, unless the config is insecure."""
        if not (self.keys or self.insecure or is_loopback(bind.host)):
            raise ConfigError(
                f"bind = {bind} can be reached from other machines, and there is no key: anybody could send to the "
                f"group; give the same keys to all members (`motet key` makes one), bind to 127.0.0.1, or set "
                f"insecure = true"
            )

    def check_service(self, name: str, bind: Endpoint) -> None:
        """Without a token a service must bind to loopback. `insecure` opens the admin service, but never the log."""
        may_be_open = name == "admin_bind"
        if not (self.token or (self.insecure and may_be_open) or is_loopback(bind.host)):
            way_out = "set token, bind to 127.0.0.1, or set insecure = true"
            raise ConfigError(
                f"{name} = {bind} can be reached from other machines, and there is no token: anybody could use it; "
                f"{way_out if may_be_open else 'set token, or bind to 127.0.0.1'}"
            )

    def as_text(self) -> dict[str, str]:
        """All settings as people write them, with secrets hidden."""
        return {key_of(field): spell(setting_of(field), getattr(self, field.name)) for field in fields(self)}

    def _membership(self, seeds: tuple[Endpoint, ...], wants_state: bool, needs_state: bool) -> MembershipConfig:
        return MembershipConfig(
            DiscoveryConfig(
                self._sources(seeds), self.discovery_eager_ns, self.discovery_interval_ns, self.discovery_former_ns
            ),
            DetectorConfig(
                self.heartbeat_ns,
                self.suspect_ns,
                self.verify_ns,
                self.verify_attempts,
                self.suspect_max_ns,
                self.busy_max_ns,
            ),
            EngineConfig(
                self.view_retry_ns, self.view_answer_ns, self.view_answer_max_ns, self.static_quorum, self.partitions
            ),
            TransferConfig(
                wants_state, self.state_chunk_bytes, self.state_window_chunks, self.state_retry_ns, needs_state
            ),
            may_bootstrap=self.may_bootstrap,
            bootstrap_without_lookup=self.bootstrap_without_lookup,
            gather_ns=self.merge_gather_ns,
            timeout_ns=self.merge_leader_timeout_ns,
            bootstrap_after_ns=self.bootstrap_after_ns,
        )

    def _ordering(self, waits_for_disk: bool) -> OrderingConfig:
        return OrderingConfig(
            strategy=self.strategy,
            window=self.order_window_frames,
            in_flight_limit=self.order_in_flight_frames,
            backlog_bytes=self.backlog_bytes,
            packs=self.pack_messages,
            ask_ns=self.order_ask_ns,
            progress_ns=self.order_progress_ns,
            fast_path_members=self.order_fast_path_members,
            waits_for_disk=waits_for_disk,
        )

    def _sources(self, seeds: tuple[Endpoint, ...]) -> tuple[Source, ...]:
        named = tuple(parse_endpoint(seed, "seeds") for seed in self.seeds)
        sources: list[Source] = []
        if endpoints := tuple(dict.fromkeys((*seeds, *named))):
            sources.append(StaticSeeds(endpoints))
        if self.discovery_multicast:
            sources.append(IpMulticast(*parse_endpoint(self.discovery_multicast, "discovery_multicast")))
        if self.discovery_dns:
            sources.append(DnsName(*parse_endpoint(self.discovery_dns, "discovery_dns")))
        if self.discovery_directory:
            sources.append(SharedDirectory(self.discovery_directory))
        return tuple(sources)

    # Constraints between settings

    def _check_tie(self, name: str, factor: int, other: str) -> None:
        least, value = factor * getattr(self, other), getattr(self, name)
        if value < least:
            of, beside = self.__dataclass_fields__[name], self.__dataclass_fields__[other]
            setting = setting_of(of)
            raise ConfigError(
                f"{key_of(of)} = {spell(setting, value)} is too small for "
                f"{key_of(beside)} = {spell(setting, getattr(self, other))}; allowed is {spell(setting, least)} or more"
            )

    def _check_addresses(self) -> None:
        _require_multicast("multicast_group", self.multicast_group)
        if self.discovery_multicast:
            _require_multicast(
                "discovery_multicast", parse_endpoint(self.discovery_multicast, "discovery_multicast").host
            )
        for name in ("admin_bind", "log_bind"):
            if bind := getattr(self, name):
                self.check_service(name, parse_endpoint(bind, name))
        if self.trace_file and not self.trace_file.endswith((".jsonl", ".arrow", ".parquet")):
            raise ConfigError(
                f"trace_file = {self.trace_file!r} has no known format; it must end in .jsonl, .arrow or .parquet"
            )


def _require_multicast(name: str, host: str) -> None:
    try:
        is_multicast = ip_address(host).is_multicast
    except ValueError:
        is_multicast = False
    if not is_multicast:
        raise outside(name, repr(host), "an IP multicast group, 224.0.0.0 to 239.255.255.255 or ff00::/8")
