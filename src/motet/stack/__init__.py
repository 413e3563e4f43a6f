"""The sans-IO composition of the machines into one member."""

from motet.stack.config import MemberConfig
from motet.stack.member import Datagram, Delivered, Member

__all__ = ["Datagram", "Delivered", "Member", "MemberConfig"]
