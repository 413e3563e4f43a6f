"""Values that every member reads alike: JSON, and bytes as {"$bytes": base64}; a key that begins with $ gets one more.

Text is canonical (no spaces, keys sorted), so equal values are equal bytes; 1 and 1.0 are two values. What JSON cannot
carry exactly is refused where it is written: tuples and sets would come back as something else, NaN equals nothing.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from math import isfinite

from motet.errors import MisuseError

Value = bytes | str | int | float | bool | None | list["Value"] | dict[str, "Value"]
Writable = bytes | str | int | float | bool | None | Sequence["Writable"] | Mapping[str, "Writable"]  # a list[int], too

MOST_DEPTH = 64
MOST_INT_BITS = 4_096
_BYTES = "$bytes"
_ALLOWED = "allowed are bytes, str, int, float, bool, None, and lists and dicts (with str keys) of these"


def encode_value(value: Writable) -> bytes:
    try:
        return json.dumps(_plain(value, 0), separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    except UnicodeEncodeError:
        raise MisuseError(f"a text with half a surrogate pair cannot be replicated; {_ALLOWED}") from None


def decode_value(data: bytes) -> Value:
    """What `encode_value` made; ValueError for anything else."""
    try:
        return _rich(json.loads(data.decode(), parse_constant=_no_constant))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no value")


def _plain(value: object, depth: int) -> object:
    if depth > MOST_DEPTH:
        raise MisuseError(f"a value nested deeper than {MOST_DEPTH} cannot be replicated; flatten it")
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item, depth + 1) for key, item in value.items()}
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and value.bit_length() <= MOST_INT_BITS:
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    raise MisuseError(f"{_brief(value)} cannot be replicated; {_ALLOWED}")


def _plain_key(key: object) -> str:
    if not isinstance(key, str):
        raise MisuseError(f"the key {_brief(key)} cannot be replicated; keys are str")
    return f"${key}" if key.startswith("$") else key


def _rich(value: object) -> Value:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES}:
            return _bytes(value[_BYTES])
        return {key.removeprefix("$") if key.startswith("$") else key: _rich(item) for key, item in value.items()}
    assert value is None or isinstance(value, str | int | float)
    return value


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("bytes that are no text")
    return b64decode(text, validate=True)


def _brief(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:40]}" if not isinstance(value, int) else "an int of so many bits"
