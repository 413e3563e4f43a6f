"""The sans-IO composition of the protocol machines into one member."""

from motet.protocol.member.config import MemberConfig
from motet.protocol.member.delivery import Delivered, Superseded
from motet.protocol.member.durable_state import DurableState
from motet.protocol.member.member import Announcement, Datagram, Member

__all__ = ["Announcement", "Datagram", "Delivered", "DurableState", "Member", "MemberConfig", "Superseded"]
