"""The processes that the director starts: `python -m motet.harness.demo member JSON`, or `ingest JSON`."""

from __future__ import annotations

import json
import os
import sys

from motet.harness.child_link import tie_to_parent


def main() -> None:
    role, given = sys.argv[1], json.loads(sys.argv[2])
    tie_to_parent(int(given["parent"]))  # first, so that the process never outlives the demo
    if role == "member":
        from motet.harness.demo.member_process import run_member

        run_member(given)
    else:
        from motet.harness.demo.ingest import ingest

        ingest(given)
    os._exit(0)  # threads that a library left running must not keep the process alive


if __name__ == "__main__":
    main()
