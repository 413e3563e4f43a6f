"""Reliable multicast on a fixed ring window, after the seed `mcast.txt`."""

from motet.multicast.config import MulticastConfig
from motet.multicast.machine import Multicast

__all__ = ["Multicast", "MulticastConfig"]
