"""Motet: processes that share one ordered log of messages, with no broker between them."""

from importlib.metadata import version

__version__ = version("motet")

__all__ = ["__version__"]
