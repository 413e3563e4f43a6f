"""A process that serves the journal in a directory until it is killed; prints its endpoint."""

from __future__ import annotations

import sys
import threading

from motet.serve.flight import LogService
from motet.serve.journal_source import JournalSource


def main() -> None:
    service = LogService(JournalSource(sys.argv[1]))
    sys.stdout.write(service.endpoint + "\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
