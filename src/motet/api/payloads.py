"""What an application may hand over as bytes, and what it is told when it hands over something else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from motet.errors import MisuseError

Payload = bytes | bytearray | memoryview


def plain(payload: Payload, what: str = "a message") -> bytes:
    """The same as bytes; what its owner may still change is copied."""
    if isinstance(payload, bytes) and type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise _no_bytes(payload, what)


def plain_all(payloads: Iterable[Payload], what: str = "a message") -> Sequence[bytes]:
    """The same for many: a sequence of nothing but bytes, which is the usual case, is handed on as it is."""
    if isinstance(payloads, str | bytes | bytearray | memoryview):
        raise MisuseError(
            f"a list of messages is wanted, and this is one {type(payloads).__name__}; put it into a list, "
            f"or send it with multicast() or send()"
        )
    if not isinstance(payloads, Iterable):
        raise MisuseError(f"a list of messages is wanted, and this is {payloads!r:.80}")
    given = payloads if isinstance(payloads, Sequence) else tuple(payloads)
    if {*map(type, given)} <= {bytes}:
        return given
    return [plain(payload, what) for payload in given]


def _no_bytes(payload: object, what: str) -> MisuseError:
    if isinstance(payload, str):
        return MisuseError(f"{what} is bytes, and this is a str; encode it first: {payload!r:.40}.encode()")
    return MisuseError(f"{what} is bytes, and this is {type(payload).__name__}: {payload!r:.80}")
