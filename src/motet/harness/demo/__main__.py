"""The processes that the director starts: `python -m motet.harness.demo player JSON`, or `ingest JSON`."""

from __future__ import annotations

import json
import os
import sys

from motet.harness.demo.tether import tie_to_parent


def main() -> None:
    role, given = sys.argv[1], json.loads(sys.argv[2])
    tie_to_parent(int(given["parent"]))  # before anything that takes time
    if role == "member":
        from motet.harness.demo.member_process import play

        play(given)
    else:
        from motet.harness.demo.ingest import ingest

        ingest(given)
    os._exit(0)  # whatever a library left running must not keep the process


if __name__ == "__main__":
    main()
