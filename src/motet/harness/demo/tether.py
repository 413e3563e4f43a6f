"""A process of the demo never outlives it: Linux ends it with its parent, and everywhere the end of stdin does."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """First thing in a child. Between its start and this call the parent may have gone: then so do we."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def say(**fields: Any) -> None:
    """One JSON object per line; in one write, for several threads may speak."""
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):  # nobody listens any more
        os._exit(1)
