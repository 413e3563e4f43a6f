"""The durable log of one member: segments, recovery, retention. The reader is in `motet.journal.reader`: it needs
pyarrow, and writing does not."""

from motet.journal.config import Fsync, JournalConfig
from motet.journal.raw import Cursor, LogEnd
from motet.journal.records import Entry, ViewRecord
from motet.journal.recovery import Recovery
from motet.journal.writer import Journal

__all__ = ["Cursor", "Entry", "Fsync", "Journal", "JournalConfig", "LogEnd", "Recovery", "ViewRecord"]
