"""The durable log of one member: segments, recovery, retention; and reading it as columns.

Writing needs no pyarrow; so the reader is imported when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motet.log.journal.config import Fsync, JournalConfig
from motet.log.journal.raw import Cursor, JournalEnd
from motet.log.journal.records import Entry, ViewRecord
from motet.log.journal.recovery import Recovery
from motet.log.journal.writer import Journal

if TYPE_CHECKING:
    from motet.log.journal.reader import Bounds, JournalReader

__all__ = [
    "Bounds",
    "Cursor",
    "Entry",
    "Fsync",
    "Journal",
    "JournalConfig",
    "JournalEnd",
    "JournalReader",
    "Recovery",
    "ViewRecord",
]


def __getattr__(name: str) -> Any:
    if name in ("Bounds", "JournalReader"):
        from motet.log.journal import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
