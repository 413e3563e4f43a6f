"""The sans-IO composition of the machines into one member."""

from motet.stack.config import MemberConfig
from motet.stack.delivery import Delivered, Superseded
from motet.stack.member import Announcement, Datagram, Member
from motet.stack.memory import Memory

__all__ = ["Announcement", "Datagram", "Delivered", "Member", "MemberConfig", "Memory", "Superseded"]
