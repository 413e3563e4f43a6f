"""Who is in the group: discovery, failure detection, views and how they change, the primary component."""

from motet.protocol.core.view import View, ViewId
from motet.protocol.membership.config import MembershipConfig
from motet.protocol.membership.detector import (
    BecameBusy,
    BecameResponsive,
    DetectorConfig,
    FailureDetector,
    Suspected,
    Trusted,
)
from motet.protocol.membership.discovery import (
    Announce,
    Consult,
    Contact,
    DiscoveryConfig,
    DnsName,
    IpMulticast,
    SharedDirectory,
    StaticSeeds,
)
from motet.protocol.membership.engine import EngineConfig, FlushTimedOut, Left, MergeUnanswered, ViewInstalled
from motet.protocol.membership.machine import Membership
from motet.protocol.membership.overlap import DigestsOverlapped, ReportedEntry
from motet.protocol.membership.primary import PrimaryRecord, is_primary
from motet.protocol.membership.transfer import (
    ProvideState,
    StateDelayed,
    StateFailed,
    StateLost,
    StateReceived,
    StateRefused,
    TransferConfig,
)

__all__ = [
    "Announce",
    "BecameBusy",
    "BecameResponsive",
    "Consult",
    "Contact",
    "DetectorConfig",
    "DigestsOverlapped",
    "DiscoveryConfig",
    "DnsName",
    "EngineConfig",
    "FailureDetector",
    "FlushTimedOut",
    "IpMulticast",
    "Left",
    "Membership",
    "MembershipConfig",
    "MergeUnanswered",
    "PrimaryRecord",
    "ProvideState",
    "ReportedEntry",
    "SharedDirectory",
    "StateDelayed",
    "StateFailed",
    "StateLost",
    "StateReceived",
    "StateRefused",
    "StaticSeeds",
    "Suspected",
    "TransferConfig",
    "Trusted",
    "View",
    "ViewId",
    "ViewInstalled",
    "is_primary",
]
