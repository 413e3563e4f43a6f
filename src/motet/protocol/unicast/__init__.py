"""Reliable unicast, after the JGroups design notes UNICAST3 and UNICAST3-SYNC."""

from motet.protocol.unicast.config import UnicastConfig
from motet.protocol.unicast.machine import Unicast

__all__ = ["Unicast", "UnicastConfig"]
