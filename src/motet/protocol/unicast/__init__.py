"""Reliable unicast, after the seeds `unicast3.txt` and `unicast3-sync.txt`."""

from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.unicast.machine import Unicast

__all__ = ["Unicast", "UnicastConfig"]
