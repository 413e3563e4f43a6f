"""Total order: every member delivers the same messages in the same order (seed `isis-total-order.md`)."""

from motet.ordering.config import OrderingConfig
from motet.ordering.machine import RolledBack, StableAdvanced, TotalOrder

__all__ = ["OrderingConfig", "RolledBack", "StableAdvanced", "TotalOrder"]
