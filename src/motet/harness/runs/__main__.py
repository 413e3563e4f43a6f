"""The process of one member of a run: `python -m motet.harness.runs PARENT WORK`, started by `processes.py`."""

from __future__ import annotations

import sys

from motet.harness.runs.member_process import main

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
