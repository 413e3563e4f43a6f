"""Config classes check themselves with these, so that every bad value is answered in the same words."""

from __future__ import annotations

from motet.errors import ConfigError


def require_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} = {value} is outside what is allowed: {least} to {most}")
