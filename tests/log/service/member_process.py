"""A process that serves the journal in a directory until it is killed, or until a line comes; prints its endpoint.

It ends without closing its service, as a process does whose main function returns.
"""

from __future__ import annotations

import sys

from motet.log.service.flight import LogService
from motet.log.service.journal_source import JournalSource


def main() -> None:
    service = LogService(JournalSource(sys.argv[1]))
    sys.stdout.write(service.endpoint + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main()
