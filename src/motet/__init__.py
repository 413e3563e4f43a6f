"""Motet: processes that share one ordered log of messages, with no broker between them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.api.blocks import Counter, Lock, ReplicatedDict
    from motet.api.events import Batch, Message
    from motet.api.group import Group
    from motet.api.joining import Joining, join
    from motet.api.receipts import Receipt
    from motet.api.sync import SyncGroup, join_sync
    from motet.config import Config
    from motet.errors import MotetError
    from motet.protocol.core.effects import SendFailed
    from motet.protocol.core.identity import Address
    from motet.protocol.core.view import View
    from motet.protocol.membership.engine import ViewInstalled
    from motet.protocol.membership.transfer import StateLost, StateRefused
    from motet.protocol.ordering import RolledBack

__version__ = version("motet")

# Where each name lives. They are loaded when they are first used: a room on its own must not pay for all others.
_HOMES = {
    "Address": "motet.protocol.core.identity",
    "Batch": "motet.api.events",
    "Config": "motet.config",
    "Counter": "motet.api.blocks",
    "Group": "motet.api.group",
    "Joining": "motet.api.joining",
    "Lock": "motet.api.blocks",
    "Message": "motet.api.events",
    "MotetError": "motet.errors",
    "Receipt": "motet.api.receipts",
    "ReplicatedDict": "motet.api.blocks",
    "RolledBack": "motet.protocol.ordering",
    "SendFailed": "motet.protocol.core.effects",
    "StateLost": "motet.protocol.membership.transfer",
    "StateRefused": "motet.protocol.membership.transfer",
    "SyncGroup": "motet.api.sync",
    "View": "motet.protocol.core.view",
    "ViewInstalled": "motet.protocol.membership.engine",
    "join": "motet.api.joining",
    "join_sync": "motet.api.sync",
}

__all__ = [
    "Address",
    "Batch",
    "Config",
    "Counter",
    "Group",
    "Joining",
    "Lock",
    "Message",
    "MotetError",
    "Receipt",
    "ReplicatedDict",
    "RolledBack",
    "SendFailed",
    "StateLost",
    "StateRefused",
    "SyncGroup",
    "View",
    "ViewInstalled",
    "__version__",
    "join",
    "join_sync",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
