"""What sealing costs: one core, datagrams of a few sizes, both ciphers that could do it, beside one copy of the bytes.

    copy       bytearray(datagram): what no handling of bytes can do without
    seal       Sealer.seal, a new header and nonce each time
    open       Opener.open, replay window included
    encrypt    the bare cipher, AES-256-GCM and ChaCha20-Poly1305: why the seal uses the first
    decrypt

Rounds of all rows alternate, so that all see the same machine; the best of each is shown. Seconds are seconds of
processor time.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from random import Random
from time import thread_time_ns

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from rich.console import Console
from rich.table import Table

from motet.protocol.wire.seal import KEY_BYTES, SEAL_HEADER, Keyring, Opener, Sealer

SIZES = (200, 1_400, 60_000)
MOST_DATAGRAMS = 5_000  # per round, so that small ones take no longer than large ones
RING = Keyring({1: Random(1).randbytes(KEY_BYTES)}, 1)
HEADER, NONCE = bytes(SEAL_HEADER.size), bytes(12)

Cipher = AESGCM | ChaCha20Poly1305
Round = Callable[[], Iterable[object]]  # makes one result per datagram, lazily


@dataclass(frozen=True, slots=True)
class SealingRow:
    bytes: int
    work: str
    megabytes_per_second: float
    microseconds_each: float


def rounds_of(datagrams: list[bytes]) -> dict[str, Round]:
    sealer = Sealer(RING, 1, 1)
    other = Sealer(RING, 2, 1)
    sealed = [other.seal(datagram) for datagram in datagrams]
    rounds: dict[str, Round] = {
        "copy": lambda: map(bytearray, datagrams),
        "seal": lambda: map(sealer.seal, datagrams),
        "open": lambda: map(Opener(RING).open, sealed),
    }
    for cipher in (AESGCM(RING.keys[1]), ChaCha20Poly1305(RING.keys[1])):
        name = type(cipher).__name__
        rounds[f"encrypt {name}"] = _encrypting(cipher, datagrams)
        rounds[f"decrypt {name}"] = _decrypting(cipher, [cipher.encrypt(NONCE, d, HEADER) for d in datagrams])
    return rounds


def _encrypting(cipher: Cipher, datagrams: list[bytes]) -> Round:
    return lambda: (cipher.encrypt(NONCE, datagram, HEADER) for datagram in datagrams)


def _decrypting(cipher: Cipher, encrypted: list[bytes]) -> Round:
    return lambda: (cipher.decrypt(NONCE, datagram, HEADER) for datagram in encrypted)


def measure(size: int, repeats: int, total_bytes: int) -> list[SealingRow]:
    count = max(1, min(MOST_DATAGRAMS, total_bytes // size))
    rng = Random(size)
    rounds = rounds_of([rng.randbytes(size) for _ in range(count)])
    best = dict.fromkeys(rounds, 1 << 62)
    for _ in range(repeats):
        for name, make in rounds.items():
            started = thread_time_ns()
            deque(make(), maxlen=0)  # each result is dropped at once
            best[name] = min(best[name], thread_time_ns() - started)
    return [
        SealingRow(size, name, round(size * count * 1_000 / ns), round(ns / count / 1_000, 2))
        for name, ns in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each row (default 9)")
    parser.add_argument("--megabytes", type=int, default=30, help="bytes per round (default 30)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options = parser.parse_args()
    rows = [row for size in SIZES for row in measure(size, options.rounds, options.megabytes * 1_000_000)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("bytes", "work", "MB/s", "µs each")
    for row in rows:
        table.add_row(str(row.bytes), row.work, f"{row.megabytes_per_second:,.0f}", f"{row.microseconds_each:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
