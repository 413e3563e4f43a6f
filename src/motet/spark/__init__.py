"""The data pipeline on Spark: a source and a sink for the log, the audit over journals, campaigns of simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.spark.session import build_session
    from motet.spark.source import register

__all__ = ["build_session", "register"]


def __getattr__(name: str) -> object:
    """Loaded when asked for: most of the room works without PySpark, and starting it takes a while."""
    if name == "build_session":
        from motet.spark.session import build_session

        return build_session
    if name == "register":
        from motet.spark.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
