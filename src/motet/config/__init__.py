"""Configuration: presets, a TOML file, the environment, arguments. It imports no asyncio, so any module may use it."""

from motet.config.model import Config
from motet.config.overrides import Settings
from motet.protocol.core.identity import is_loopback, parse_endpoint

__all__ = ["Config", "Settings", "is_loopback", "parse_endpoint"]
