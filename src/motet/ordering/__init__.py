"""Total order: every member delivers the same messages in the same order (seed `isis-total-order.md`)."""

from motet.ordering.carrier import PlainStream
from motet.ordering.config import OrderingConfig
from motet.ordering.log import Log
from motet.ordering.machine import AppendRepeated, RolledBack, StableAdvanced, TotalOrder

__all__ = ["AppendRepeated", "Log", "OrderingConfig", "PlainStream", "RolledBack", "StableAdvanced", "TotalOrder"]
