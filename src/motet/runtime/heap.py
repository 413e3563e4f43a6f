"""Keep freed memory in the process, because bursts of frames need it again at once.

glibc returns memory at the end of its heap to the system as soon as 128 kB of it are free. A window of frames is a
hundred times that, so acked frames would be returned and the next ones would fault the same pages in again, at some
microseconds each. After one large block was allocated and freed, glibc raises that threshold to twice the size of the
block. Other C libraries ignore this.
"""

from __future__ import annotations

KEPT_BYTES = 32 << 20  # a window of the largest frames, sent, and one received


def keep_heap() -> None:
    """Raise glibc's threshold to KEPT_BYTES. The block is never touched, so it costs no memory."""
    bytes(KEPT_BYTES // 2)
