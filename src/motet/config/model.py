"""Everything that can be set about a member, in one flat class. The defaults are those of one data centre (`lan`).

A config is checked when it is made and never changes. Why a preset has the values it has is told in `presets`.
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

# (setting, factor, other): the setting is at least factor times the other one.
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

    # Datagrams. A frame of 32 000 bytes is cut into 22 packets by IP; on a switched network hardly any is lost, and
    # what Python does costs as much for a small datagram as for a large one.
    frame_bytes: int = size(32_000, 512, MAX_DATAGRAM_BYTES, "the largest datagram, with all headers and the seal")
    packet_bytes: int = size(
        1_400,
        0,
        MAX_DATAGRAM_BYTES,
        "Size of segments into which larger datagrams are cut where packets are lost; 0 never cuts.",
    )
    window_frames: int = count(256, 1, 1 << 20, "frames under way in each stream; beyond it a sender waits")
    order_window_frames: int = count(256, 1, MOST_IN_FLIGHT, "ordered frames of ours that are not delivered here yet")
    order_in_flight_frames: int = count(1_024, 1, MOST_IN_FLIGHT, "and of those that others may not have delivered yet")
    order_fast_path_members: int = count(
        5, 0, 64, "up to so many, all hear all proposals of a quiet group: a journey less"
    )
    backlog_bytes: int = size(32 << 20, 1, 1 << 40, "what may wait for the window, per stream; then sends wait")
    pack_messages: bool = flag(True, "whether messages that wait for the window share a frame; false is slower")
    transport: str = choice(("unicast", "multicast"), "a datagram per member, or one for all by IP multicast")
    multicast_group: str = text("239.192.77.85", "the IP multicast group of transport = multicast")
    multicast_port: int = count(7885, 1, 0xFFFF, "its port")
    multicast_ttl: int = count(1, 0, 255, "how many routers IP multicast may pass; 0 stays in this machine")
    multicast_interface: str = text("", "the address of the interface for IP multicast; empty lets the system choose")
    socket_buffer_bytes: int = size(8 << 20, 4 << 10, 1 << 30, "asked of the system for the socket: one full window")
    wakeup_datagrams: int = count(32, 1, 1 << 16, "datagrams taken at most before timers and sends have their turn")
    spin_ns: int = duration(0, 0, SECOND, "thread=False: how long to look again for an answer before the loop sleeps")

    # The application
    queue_bytes: int = size(32 << 20, 1 << 10, 1 << 40, "deliveries that wait for a slow application; then sends wait")
    state_buffer_bytes: int = size(64 << 20, 0, 1 << 40, "deliveries kept back while the state is on its way to us")

    # Repair and acks
    xmit_interval_ns: int = duration(500 * MILLISECOND, MILLISECOND, MINUTE, "the slowest pace of repair")
    min_repair_ns: int = duration(2 * MILLISECOND, MICROSECOND, SECOND, "the fastest pace of repair")
    initial_rtt_ns: int = duration(10 * MILLISECOND, MICROSECOND, MINUTE, "the round trip, until it is measured")
    ack_min_ns: int = duration(5 * MILLISECOND, 0, 10 * SECOND, "no two acks of a connection are closer than this")
    ack_max_ns: int = duration(20 * MILLISECOND, 0, MINUTE, "no ack of a connection waits longer")
    conn_expiry_ns: int = duration(MINUTE, 0, 365 * DAY, "a connection idle for so long is closed; 0 never")
    conn_close_ns: int = duration(30 * SECOND, 0, 365 * DAY, "and forgotten after this")
    give_up_ns: int = duration(MINUTE, MILLISECOND, 365 * DAY, "a silent peer's messages are given up after this")
    # Below the 60 s that an admin operation waits, so that `motet probe ... sync` always says how it ended.
    sync_timeout_ns: int = duration(5 * SECOND, MILLISECOND, 50 * SECOND, "a SYNC without an answer fails after this")

    # Failure detection
    heartbeat_ns: int = duration(250 * MILLISECOND, MILLISECOND, MINUTE, "the longest a member is silent")
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
        "Longest time others keep a member that is alive but busy, such as by code that holds the GIL.",
    )
    liveness_process: bool = flag(
        True,
        "Whether a small process tells the others that this one is alive while it cannot itself.",
    )

    # Discovery
    seeds: tuple[str, ...] = texts("endpoints where members may be, HOST:PORT")
    discovery_multicast: str = text("", "an IP multicast group where members look for each other, GROUP:PORT")
    discovery_dns: str = text("", "a name that has an address for every member, NAME:PORT")
    discovery_directory: str = text("", "a shared directory in which members enter themselves")
    discovery_eager_ns: int = duration(100 * MILLISECOND, MILLISECOND, MINUTE, "the first wait between two looks")
    discovery_interval_ns: int = duration(SECOND, MILLISECOND, HOUR, "the longest: so late a healed partition is seen")
    discovery_former_ns: int = duration(10 * MINUTE, MILLISECOND, DAY, "so long former members are looked for")

    # Views
    may_bootstrap: bool = flag(True, "whether this process may found a group when it finds none")
    bootstrap_without_lookup: bool = flag(
        False, "Allow a bootstrap while look-ups of discovery_dns or discovery_directory fail: at one member only."
    )
    bootstrap_after_ns: int = duration(1_200 * MILLISECOND, 0, 10 * MINUTE, "alone for so long: it founds a group")
    merge_gather_ns: int = duration(100 * MILLISECOND, 0, MINUTE, "from the first sight of another view to the merge")
    merge_leader_timeout_ns: int = duration(SECOND, 0, 10 * MINUTE, "so long one waits for who should lead the merge")
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
    partitions: str = choice(("primary", "all"), "who goes on ordering when the group is split: one side, or all")
    static_quorum: int = count(0, 0, 1 << 16, "members that make a view primary; 0: a majority of the last one")

    # Total order
    strategy: str = choice(("window", "continuous"), "what ordered frames ride on")
    order_ask_ns: int = duration(50 * MILLISECOND, MILLISECOND, MINUTE, "late proposals are asked for after this")
    order_progress_ns: int = duration(10 * MILLISECOND, MILLISECOND, MINUTE, "how often members tell how far they are")

    # State transfer
    state_chunk_bytes: int = size(32_000, 256, 65_000, "a piece of the state; at most what fits into a datagram")
    state_window_chunks: int = count(16, 1, 0xFFFF, "pieces under way to one who joins")
    state_retry_ns: int = duration(50 * MILLISECOND, MILLISECOND, MINUTE, "lost pieces are asked for after this")

    # Snapshots
    snapshot_timeout_ns: int = duration(10 * SECOND, MILLISECOND, HOUR, "a snapshot not whole by then has failed")

    # Security
    keys: tuple[str, ...] = texts(
        "the group's keys, KEY or ID:KEY; the first one seals, all of them open", is_secret=True
    )
    insecure: bool = flag(False, "allow a member without a key to be reached from other machines")
    token: str = text("", "what admin and log service ask for; needed off loopback", is_secret=True)
    replay_window: int = count(1_024, 64, 65_536, "datagrams of one sender within which repeats are told from new ones")

    # Services
    admin_bind: str = text("", "where to serve admin, metrics and dashboard, HOST:PORT; empty: nowhere")
    log_bind: str = text("", "where to serve the log, HOST:PORT; empty: nowhere")
    trace_file: str = text("", "where to write trace events, .jsonl or .arrow or .parquet; empty: none are made")

    # The journal
    journal_fsync: str = choice(("interval", "always", "never"), "when appended bytes are forced to the disk")
    journal_interval_ns: int = duration(50 * MILLISECOND, MILLISECOND, HOUR, "how often, with interval")
    journal_segment_bytes: int = size(64 << 20, 4 << 10, 1 << 30, "the size of one file of the journal")
    retention_bytes: int = size(0, 0, 1 << 60, "the oldest files go while there is more than this; 0 keeps all")
    retention_age_ns: int = duration(0, 0, 10_000 * DAY, "files older than this go; 0 keeps them however old")

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field, getattr(self, field.name))
            if setting_of(field).is_secret:
                object.__setattr__(self, field.name, sealed_off(getattr(self, field.name)))
        for name, factor, other in TIES:
            self._check_tie(name, factor, other)
        self._check_places()
        self.keyring()
        self.member_config()  # whatever else the rooms below would refuse
        self.journal_config()

    def __deepcopy__(self, memo: object) -> Config:
        return self  # it never changes, and copies of its secrets would be no secrets

    # Where it comes from. Settings are given as people write them: heartbeat="250ms", frame_bytes="64KiB"

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
        """Preset, then file, then environment, then arguments; what comes later wins. MOTET_CONFIG may name a file."""
        variables = os.environ if environ is None else environ
        return cls(**gather(fields(cls), path or named_file(variables), variables, overrides))

    # What the rooms below get

    def member_config(
        self,
        seeds: Sequence[Endpoint] = (),
        *,
        wants_state: bool = False,
        needs_state: bool = False,
        waits_for_disk: bool = False,
        receive_bytes: int = 0,
    ) -> MemberConfig:
        """For a member that also looks for others at `seeds`.

        `wants_state`: it can take a state; `needs_state`: it waits for one where nobody has it;
        `waits_for_disk`: others may hear only of what its journal has on disk;
        `receive_bytes`: what its socket holds, and so, we believe, the sockets of others.
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
        """None: datagrams are not sealed."""
        return Keyring.of(self.keys) if self.keys else None

    def check_bind(self, bind: Endpoint) -> None:
        """Without a key a member is reached from its own machine only, unless it is told otherwise."""
        if not (self.keys or self.insecure or is_loopback(bind.host)):
            raise ConfigError(
                f"bind = {bind} can be reached from other machines, and there is no key: anybody could speak in the "
                f"group; give the same keys to all members (`motet key` makes one), bind to 127.0.0.1, or say "
                f"insecure = true"
            )

    def check_service(self, name: str, bind: Endpoint) -> None:
        """The same for `admin_bind` and `log_bind`, which ask for a token; the log is never open to everybody."""
        may_be_open = name == "admin_bind"
        if not (self.token or (self.insecure and may_be_open) or is_loopback(bind.host)):
            way_out = "set token, bind to 127.0.0.1, or say insecure = true"
            raise ConfigError(
                f"{name} = {bind} can be reached from other machines, and there is no token: anybody could use it; "
                f"{way_out if may_be_open else 'set token, or bind to 127.0.0.1'}"
            )

    def as_text(self) -> dict[str, str]:
        """Every setting as people write it, secrets hidden."""
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
            found_ns=self.bootstrap_after_ns,
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
        if found := tuple(dict.fromkeys((*seeds, *named))):
            sources.append(StaticSeeds(found))
        if self.discovery_multicast:
            sources.append(IpMulticast(*parse_endpoint(self.discovery_multicast, "discovery_multicast")))
        if self.discovery_dns:
            sources.append(DnsName(*parse_endpoint(self.discovery_dns, "discovery_dns")))
        if self.discovery_directory:
            sources.append(SharedDirectory(self.discovery_directory))
        return tuple(sources)

    # What only shows when settings are seen together

    def _check_tie(self, name: str, factor: int, other: str) -> None:
        least, value = factor * getattr(self, other), getattr(self, name)
        if value < least:
            of, beside = self.__dataclass_fields__[name], self.__dataclass_fields__[other]
            setting = setting_of(of)
            raise ConfigError(
                f"{key_of(of)} = {spell(setting, value)} is too little beside "
                f"{key_of(beside)} = {spell(setting, getattr(self, other))}; allowed is {spell(setting, least)} or more"
            )

    def _check_places(self) -> None:
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
                f"trace_file = {self.trace_file!r} tells no format; it may end in .jsonl, .arrow or .parquet"
            )


def _require_multicast(name: str, host: str) -> None:
    try:
        is_multicast = ip_address(host).is_multicast
    except ValueError:
        is_multicast = False
    if not is_multicast:
        raise outside(name, repr(host), "an IP multicast group, 224.0.0.0 to 239.255.255.255 or ff00::/8")
