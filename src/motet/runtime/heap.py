"""The memory of a process that sends and receives bursts of frames.

The C library gives memory at the end of its heap back to the system as soon as 128 kB of it are free, and a window of
frames is a hundred times that: whatever is acked is returned, and the next frames fetch the same pages again, at some
microseconds each. When a large block has come and gone, glibc takes that for a sign that more is to come, and keeps
up to twice its size from then on. Other libraries do not mind.
"""

from __future__ import annotations

KEPT_BYTES = 32 << 20  # a window of the largest frames, sent, and one received


def keep_heap() -> None:
    """Let the process keep so much memory for what comes next. The block is never touched, and costs nothing."""
    bytes(KEPT_BYTES // 2)
