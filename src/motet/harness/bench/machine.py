"""Describes the machine of a measurement, without which its figures are meaningless."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from motet import __version__


def describe() -> dict[str, str | float]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "motet": __version__,
        "load_before": round(os.getloadavg()[0], 2),
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return ", ".join(sorted(names)) or platform.processor()
