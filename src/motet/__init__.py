"""Motet: processes that share one ordered log of messages, with no broker between them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.aio.events import Batch, Message
    from motet.aio.group import Group
    from motet.aio.joining import Joining, join
    from motet.aio.receipts import Receipt
    from motet.aio.sync import SyncGroup, join_sync
    from motet.blocks import Counter, Lock, ReplicatedDict
    from motet.config import Config
    from motet.core.effects import SendFailed
    from motet.core.identity import Address
    from motet.core.view import View
    from motet.errors import MotetError
    from motet.membership.engine import ViewInstalled
    from motet.membership.transfer import StateLost, StateRefused
    from motet.ordering import RolledBack

__version__ = version("motet")

# Where each name lives. They are loaded when they are first used: a room on its own must not pay for all others.
_HOMES = {
    "Address": "motet.core.identity",
    "Batch": "motet.aio.events",
    "Config": "motet.config",
    "Counter": "motet.blocks",
    "Group": "motet.aio.group",
    "Joining": "motet.aio.joining",
    "Lock": "motet.blocks",
    "Message": "motet.aio.events",
    "MotetError": "motet.errors",
    "Receipt": "motet.aio.receipts",
    "ReplicatedDict": "motet.blocks",
    "RolledBack": "motet.ordering",
    "SendFailed": "motet.core.effects",
    "StateLost": "motet.membership.transfer",
    "StateRefused": "motet.membership.transfer",
    "SyncGroup": "motet.aio.sync",
    "View": "motet.core.view",
    "ViewInstalled": "motet.membership.engine",
    "join": "motet.aio.joining",
    "join_sync": "motet.aio.sync",
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
