"""A process that takes appends into a log in memory until it is killed; prints its endpoint. A crash is its own."""

from __future__ import annotations

import sys

from motet.log.service.flight import LogService
from tests.log.service.memory import FakeGroup, MemorySource


def main() -> None:
    source = MemorySource()
    service = LogService(source, FakeGroup(source, most_bytes=32_768))
    sys.stdout.write(service.endpoint + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main()
