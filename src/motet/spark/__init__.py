"""The Spark connector: the log of a group as a source and as a sink, and the session that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.spark.session import build_session
    from motet.spark.source import register

__all__ = ["build_session", "register"]


def __getattr__(name: str) -> object:
    """Import lazily: most of this package works without PySpark, and importing PySpark is slow."""
    if name == "build_session":
        from motet.spark.session import build_session

        return build_session
    if name == "register":
        from motet.spark.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
