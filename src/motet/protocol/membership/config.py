"""What membership wants to know, and three presets that say why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from motet.protocol.core.checks import require_between
from motet.protocol.core.identity import Endpoint
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.membership.detector import DetectorConfig
from motet.protocol.membership.discovery import DiscoveryConfig, StaticSeeds
from motet.protocol.membership.engine import EngineConfig
from motet.protocol.membership.transfer import TransferConfig


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    detector: DetectorConfig = field(default_factory=DetectorConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    may_bootstrap: bool = True  # False for a process that lost its durable state: it must not bootstrap a group anew
    bootstrap_without_lookup: bool = (
        False  # also while a look-up of DNS or a directory has failed: nobody knows who is there
    )
    gather_ns: int = 100 * MILLISECOND  # from the first sight of another view to the merge: others may come with it
    timeout_ns: int = SECOND  # how long one who should not lead a merge waits for the one who should
    bootstrap_after_ns: int = 1_200 * MILLISECOND  # this long without any answer; longer than a probe interval
    most_parts: int = 64  # views that are merged at once; the rest follows in the next merge

    def __post_init__(self) -> None:
        require_between("gather_ns", self.gather_ns, 0, 60 * SECOND)
        require_between("timeout_ns", self.timeout_ns, self.gather_ns, 600 * SECOND)
        require_between("bootstrap_after_ns", self.bootstrap_after_ns, 0, 600 * SECOND)
        require_between("most_parts", self.most_parts, 2, 256)

    @classmethod
    def local(cls) -> MembershipConfig:
        """Processes of one machine: round trips of a tenth of a millisecond, and no loss worth the name."""
        return cls(
            DiscoveryConfig(eager_ns=50 * MILLISECOND, probe_ns=500 * MILLISECOND),
            DetectorConfig(200 * MILLISECOND, 500 * MILLISECOND, 250 * MILLISECOND, 5, 15 * SECOND),
            EngineConfig(retry_ns=20 * MILLISECOND, answer_ns=250 * MILLISECOND, answer_max_ns=10 * SECOND),
            gather_ns=50 * MILLISECOND,
            timeout_ns=500 * MILLISECOND,
            bootstrap_after_ns=600 * MILLISECOND,
        )

    @classmethod
    def lan(cls) -> MembershipConfig:
        """One data centre: round trips below some milliseconds, rare bursts of loss. The defaults."""
        return cls()

    @classmethod
    def wan(cls) -> MembershipConfig:
        """Several sites: round trips of up to half a second, routes that change for a second or two."""
        return cls(
            DiscoveryConfig(eager_ns=500 * MILLISECOND, probe_ns=5 * SECOND),
            DetectorConfig(SECOND, 5 * SECOND, 3 * SECOND, 5, 120 * SECOND),
            EngineConfig(retry_ns=500 * MILLISECOND, answer_ns=4 * SECOND, answer_max_ns=60 * SECOND),
            TransferConfig(chunk_bytes=1_200, window=256, retry_ns=500 * MILLISECOND),
            gather_ns=SECOND,
            timeout_ns=5 * SECOND,
            bootstrap_after_ns=6 * SECOND,
        )

    def with_seeds(self, *endpoints: Endpoint) -> MembershipConfig:
        """The same, looking for others at these endpoints."""
        return replace(self, discovery=replace(self.discovery, sources=(StaticSeeds(endpoints),)))

    @property
    def seeds(self) -> tuple[Endpoint, ...]:
        named = (source.endpoints for source in self.discovery.sources if isinstance(source, StaticSeeds))
        return tuple(dict.fromkeys(endpoint for endpoints in named for endpoint in endpoints))
