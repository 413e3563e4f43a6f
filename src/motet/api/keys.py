"""Messages with a key: the key's length (u16), the key, the payload."""

from __future__ import annotations

from collections.abc import Sequence

from motet.errors import MisuseError

MOST_KEY_BYTES = 0xFFFF


def keyed(keys: Sequence[bytes], payloads: Sequence[bytes]) -> list[bytes]:
    if len(keys) != len(payloads):
        raise MisuseError(f"{len(keys)} keys for {len(payloads)} messages; give one key per message")
    if max(map(len, keys), default=0) > MOST_KEY_BYTES:
        raise MisuseError(f"a key can have {MOST_KEY_BYTES} bytes at most; put the rest into the payload")
    return [len(key).to_bytes(2, "little") + key + payload for key, payload in zip(keys, payloads, strict=True)]


def split_keys(messages: Sequence[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Whatever a peer sent: a length beyond the end leaves an empty payload."""
    ends = [2 + int.from_bytes(message[:2], "little") for message in messages]
    keys = tuple(message[2:end] for message, end in zip(messages, ends, strict=True))
    return keys, tuple(message[end:] for message, end in zip(messages, ends, strict=True))
