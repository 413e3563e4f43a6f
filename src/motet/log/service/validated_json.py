"""Validated access to the JSON figures of a member. They come from another process, so their shape is not trusted.

A field that is missing or has the wrong type reads as empty: an older member, or a hostile one, must not break the
overview of the others. Texts and lists are truncated, so that no member can make the overview of a group large.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_TEXT = 300
MOST_LONG_TEXT = 4_000  # an error may list all allowed values, and is useless when truncated
MOST_ROWS = 256

Stats = Mapping[str, Any]


def number(stats: object, *path: str) -> float:
    value = _follow(stats, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    try:
        return value if math.isfinite(value) else 0
    except OverflowError:  # an integer that no float can hold
        return 0


def integer(stats: object, *path: str) -> int:
    return int(number(stats, *path))


def number_or_none(stats: object, *path: str) -> float | None:
    """For figures where 0 would be wrong, such as a latency that was not measured."""
    value = _follow(stats, path)
    return number(stats, *path) if isinstance(value, int | float) and not isinstance(value, bool) else None


def long_text(stats: object, *path: str) -> str:
    """A longer text for people, such as an error."""
    return text(stats, *path, most=MOST_LONG_TEXT)


def text(stats: object, *path: str, most: int = MOST_TEXT) -> str:
    value = _follow(stats, path)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    try:
        return str(value)[:most]
    except ValueError:  # an integer too long to print
        return ""


def boolean(stats: object, *path: str) -> bool:
    return _follow(stats, path) is True


def rows(stats: object, *path: str) -> list[Stats]:
    return [row for row in items(stats, *path) if isinstance(row, Mapping)]


def texts(stats: object, *path: str) -> list[str]:
    return [item[:MOST_TEXT] for item in items(stats, *path) if isinstance(item, str)]


def counters(stats: object) -> dict[str, int]:
    found = _follow(stats, ("counters",))
    return {name: integer(found, name) for name in list(found)[:MOST_ROWS]} if isinstance(found, Mapping) else {}


def to_json(value: object) -> bytes:
    """Strict JSON: NaN and infinity become null."""
    try:
        return json.dumps(value, allow_nan=False, default=str, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_without_nan(value), default=str, separators=(",", ":")).encode()


def from_json(data: bytes) -> object:
    """Parse JSON; invalid input raises ValueError and nothing else."""
    try:
        return json.loads(data, parse_constant=lambda name: None)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _follow(stats: object, path: Sequence[str]) -> object:
    for name in path:
        if not isinstance(stats, Mapping):
            return None
        stats = stats.get(name)
    return stats


def items(stats: object, *path: str) -> list[object]:
    found = _follow(stats, path)
    return list(found[:MOST_ROWS]) if isinstance(found, list | tuple) else []


def _without_nan(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
