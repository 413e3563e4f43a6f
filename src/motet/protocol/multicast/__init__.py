"""Reliable multicast on a fixed ring window, after the JGroups design note MCAST."""

from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.multicast.machine import Multicast

__all__ = ["Multicast", "MulticastConfig"]
