"""Reliable unicast, after the seeds `unicast3.txt` and `unicast3-sync.txt`."""

from motet.unicast.config import UnicastConfig
from motet.unicast.machine import Unicast

__all__ = ["Unicast", "UnicastConfig"]
