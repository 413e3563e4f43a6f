"""Reading what a member says about itself. It comes from another process, so nothing about its shape is believed.

A field that is missing or of the wrong kind reads as nothing: an older member, or a hostile one, must not break the
picture of the others. Texts and lists are cut, so that no member can make the picture of a group large.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_TEXT = 300
MOST_LONG_TEXT = 4_000  # an error lists all that is allowed; cut in the middle it would not help
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
    """For figures of which zero would be a lie, such as a latency that nobody has measured."""
    value = _follow(stats, path)
    return number(stats, *path) if isinstance(value, int | float) and not isinstance(value, bool) else None


def long_text(stats: object, *path: str) -> str:
    """What a member says to the person who asked it, such as an error."""
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
    """JSON that every reader takes: no NaN, whatever was measured."""
    try:
        return json.dumps(value, allow_nan=False, default=str, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_without_nan(value), default=str, separators=(",", ":")).encode()


def from_json(data: bytes) -> object:
    """Raises ValueError, and nothing else, on what is no JSON."""
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
