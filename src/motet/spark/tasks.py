"""What every task of ours does first."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle_worker() -> None:
    """Once in the life of a worker: set aside all that was imported.

    PySpark's workers collect garbage after each task. That goes over some hundred thousand objects of modules, none of
    which will ever be garbage, and takes as long as reading half a million rows.
    """
    gc.collect()
    gc.freeze()
