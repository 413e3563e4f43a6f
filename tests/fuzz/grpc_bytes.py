"""A Flight client of bare bytes: HTTP/2 frames, gRPC messages and protobuf fields, each of which may be wrong.

A Flight client of pyarrow cannot send a broken Arrow message; here every layer is a function that returns bytes, so
that a fuzz can change them in between. Only what one short call needs of HTTP/2 is here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MOST_DATA = 16_384  # of one HTTP/2 frame, unless the server allows more
SERVICE = "/arrow.flight.protocol.FlightService/"


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: bytes) -> bytes:
    """A protobuf field of bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def descriptor(command: bytes) -> bytes:
    return b"\x08\x02" + field(2, command)


def flight_data(header: bytes, body: bytes, described: bytes = b"") -> bytes:
    return (field(1, described) if described else b"") + field(2, header) + field(1000, body)


def message(data: bytes) -> bytes:
    """One gRPC message: not compressed, its length, itself."""
    return b"\0" + len(data).to_bytes(4, "big") + data


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return len(data).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + data


def headers(method: str, token: str) -> bytes:
    """HPACK without its table: each header is a name and a value, both as they are."""
    given = {
        ":method": "POST",
        ":scheme": "http",
        ":path": SERVICE + method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        "authorization": f"Bearer {token}",
    }
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in given.items())


def _text(text: str) -> bytes:
    assert len(text) < 127  # a longer one needs a longer length
    return bytes((len(text),)) + text.encode()


def call(method: str, token: str, messages: bytes) -> bytes:
    """All bytes of one call on a connection of its own."""
    cut = [messages[at : at + MOST_DATA] for at in range(0, len(messages), MOST_DATA)] or [b""]
    frames = [frame(DATA, END_STREAM if at == len(cut) - 1 else 0, 1, data) for at, data in enumerate(cut)]
    opening = frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, headers(method, token))
    return PREFACE + opening + b"".join(frames)


def ipc_messages(batch: pa.RecordBatch, compression: str | None = None) -> list[tuple[bytes, bytes]]:
    """What an Arrow stream of one batch consists of: (header, body) of the schema, dictionaries, and the batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    found = []
    for one in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        body = b"" if one.body is None else one.body.to_pybytes()
        found.append((one.metadata.to_pybytes(), body))
    return found


def ask(port: int, raw: bytes, within_s: float) -> bytes:
    """Send bytes, and return what comes until the call ends, the service hangs up, or the time is over."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=within_s) as connection, suppress(OSError):
        ends_at = time.monotonic() + within_s
        connection.sendall(raw)
        while (left := ends_at - time.monotonic()) > 0:
            connection.settimeout(left)
            piece = connection.recv(65_536)
            answer += piece
            if not piece or has_ended(answer):
                break
    return answer


def has_ended(answer: bytes) -> bool:
    return any(
        (kind == HEADERS and flags & END_STREAM) or kind in (RST_STREAM, GOAWAY) for kind, flags, _ in frames_of(answer)
    )


def frames_of(answer: bytes) -> Sequence[tuple[int, int, bytes]]:
    found, at = [], 0
    while at + 9 <= len(answer):
        size = int.from_bytes(answer[at : at + 3], "big")
        if at + 9 + size > len(answer):
            break
        found.append((answer[at + 3], answer[at + 4], answer[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


def data_of(answer: bytes) -> bytes:
    return b"".join(data for kind, _, data in frames_of(answer) if kind == DATA)
