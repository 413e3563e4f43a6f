"""The sans-IO composition of the machines into one member."""

from motet.protocol.member.config import MemberConfig
from motet.protocol.member.delivery import Delivered, Superseded
from motet.protocol.member.member import Announcement, Datagram, Member
from motet.protocol.member.memory import Memory

__all__ = ["Announcement", "Datagram", "Delivered", "Member", "MemberConfig", "Memory", "Superseded"]
