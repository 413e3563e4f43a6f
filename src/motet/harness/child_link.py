"""How a process of `motet run` or `motet demo` reports to its parent, a JSON object per line, and never outlives it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """Call this first. Linux ends this process with its parent; elsewhere the end of stdin does.

    The parent may have ended between the start of this process and this call: then there is nothing to do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def say(**fields: Any) -> None:
    """One line, in one write, for several threads may report."""
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):  # nobody listens any more
        os._exit(1)
