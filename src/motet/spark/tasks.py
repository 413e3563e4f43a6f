"""Set-up that every task runs first."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle_worker() -> None:
    """Once per worker process: exclude all imported objects from garbage collection.

    PySpark's workers collect garbage after each task. Scanning several hundred thousand objects of modules, none of
    which is ever garbage, takes as long as reading half a million rows.
    """
    gc.collect()
    gc.freeze()
