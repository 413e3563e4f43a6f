"""Total order: every member delivers the same messages in the same order, by the ISIS algorithm (ABCAST)."""

from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.ordering.dissemination import PlainStream
from motet.protocol.ordering.log import LogProgress
from motet.protocol.ordering.machine import AppendRepeated, RolledBack, StableAdvanced, TotalOrder

__all__ = [
    "AppendRepeated",
    "LogProgress",
    "OrderingConfig",
    "PlainStream",
    "RolledBack",
    "StableAdvanced",
    "TotalOrder",
]
