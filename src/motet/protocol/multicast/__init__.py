"""Reliable multicast on a fixed ring window, after the seed `mcast.txt`."""

from motet.protocol.multicast.config import MulticastConfig
from motet.protocol.multicast.machine import Multicast

__all__ = ["Multicast", "MulticastConfig"]
