"""Fuzz the codec: `python -m tests.fuzz.codec --runs 1000000`. Any bytes are a frame or a rejection; nothing raises.

With `atheris` (coverage-guided) where it is installed, otherwise with mutated frames drawn at random.
"""

from __future__ import annotations

import argparse
import sys
from random import Random

from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.wire.codec import HEADER, DecodedDatagram, decode, encode
from motet.protocol.wire.frames import Commit, Decision, Hello, MulticastXmitRequest, Prepare, Proposals

GROUP = 1
A = Address("a", "127.0.0.1", 7800, 5)
VIEW = View(ViewId(3, 5), (A,), is_primary=True)
DECISION = Decision(((5, 1, 5, 0),), VIEW, ((5, 1),), (VIEW,), (5,), VIEW.id, 9, ((7, 2),), ((5, 1, ((3, 0),)),))
SAMPLES = [
    encode(GROUP, 5, 0, frame)
    for frame in (
        Prepare(VIEW.id, Ballot(1, 5), (A,), False),
        Commit(VIEW.id, Ballot(1, 5), DECISION),
        Hello(A, VIEW.summary, 9),
        MulticastXmitRequest(5, ((1, 3), (5, 9))),
        Proposals(VIEW.id, ((1, 2, 3), (9, 1, 7)), 5),
    )
]


def check(data: bytes) -> None:
    """What is accepted can be written again, and reads the same."""
    envelope = decode(GROUP, data)
    if isinstance(envelope, DecodedDatagram):
        assert decode(GROUP, encode(GROUP, *envelope)) == envelope


def mutated(rng: Random) -> bytes:
    data = bytearray(rng.choice(SAMPLES))
    data[3] = rng.randrange(90) if rng.random() < 0.5 else data[3]
    for _ in range(rng.randrange(4)):
        at = rng.randrange(HEADER.size, len(data))
        data[at : at + rng.randrange(9)] = rng.choice((b"", b"\xff" * 8, rng.randbytes(3)))
    return bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    options = parser.parse_args()
    try:
        import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        rng = Random(1)
        for _ in range(options.runs):
            check(mutated(rng))
        print(f"{options.runs:,} datagrams through the codec, at random (atheris is not installed): 0 errors")
        return
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-atheris_runs={options.runs}"], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
