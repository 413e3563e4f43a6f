"""Validation that all configuration classes share, so that every bad value raises an error of the same form."""

from __future__ import annotations

from motet.errors import ConfigError


def require_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} = {value} is outside what is allowed: {least} to {most}")
