"""The readable record of a run: one line per event with its virtual time. Off unless asked for."""

from __future__ import annotations

from motet.protocol.core.effects import Frame
from motet.protocol.core.units import MILLISECOND
from motet.protocol.wire.body import HEADER, PACKED, message_count
from motet.protocol.wire.codec import DecodedDatagram, decode
from motet.protocol.wire.frames import MulticastData, OrderData, UnicastData
from motet.protocol.wire.ordered import ORDERED, unseal


class Transcript:
    def __init__(self, group: int) -> None:
        self._group = group
        self.lines: list[str] = []

    def note(self, now: int, text: str) -> None:
        self.lines.append(f"{now / MILLISECOND:12.3f} ms  {text}")

    def datagram(self, now: int, source: str, to: str, data: bytes, fate: str) -> None:
        envelope = decode(self._group, data)
        what = describe(envelope.frame) if isinstance(envelope, DecodedDatagram) else f"rejected: {envelope.detail}"
        self.note(now, f"{source} -> {to}  {what}{f'  [{fate}]' if fate else ''}")


def describe(frame: Frame) -> str:
    """A frame as text: its fields, and instead of the bytes of a body a description of its content."""
    fields = {name: getattr(frame, name) for name in frame.__dataclass_fields__}  # type: ignore[attr-defined]
    if isinstance(frame, UnicastData | MulticastData | OrderData):
        fields["body"] = _describe_body(frame.body)
    if isinstance(fields.get("sender"), int):
        fields["sender"] = f"{fields['sender'] >> 48:04x}"
    return f"{type(frame).__name__}({', '.join(f'{name}={_in_words(value)}' for name, value in fields.items())})"


def _in_words(value: object) -> str:
    return f"({', '.join(map(_in_words, value))})" if isinstance(value, tuple) else str(value)


def _describe_body(body: bytes) -> str:
    if body[0] == ORDERED:
        ordered = unseal(body)
        inner = [_describe_body(ordered.inner)] if ordered.inner else []
        numbers = [f"numbers from {ordered.first}: {ordered.numbers}"] if ordered.numbers else []
        return f"{'ordered ' if ordered.is_ordered else ''}{', '.join([*inner, *numbers])}"
    kind, _, total = HEADER.unpack_from(body)
    if kind == PACKED:
        return f"{message_count(body)} messages"
    return f"fragment of {total} bytes"
