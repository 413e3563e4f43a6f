"""The NORM peer: how batches stand in its streams. What needs the library is skipped without."""

from __future__ import annotations

import pytest

from benchmarks.peers.field import PEERS, why_not
from benchmarks.peers.norm_stream import SEGMENT, cut, written
from motet.harness.bench.job import Load
from motet.harness.bench.measure import measure
from motet.harness.bench.worker import BATCH_BYTES

NORM = next(peer for peer in PEERS if peer.name == "norm")


def test_batches_are_cut_from_a_stream_however_it_is_read() -> None:
    batches = [[b"a", b"", b"bcd"], [b"e" * 300], [b"f"] * 9]
    stream = b"".join(written(batch) for batch in batches)
    for step in (1, 7, len(stream)):
        parts, found = bytearray(), []
        for at in range(0, len(stream), step):
            parts += stream[at : at + step]
            found += [[bytes(message) for message in batch] for batch in cut(parts)]
        assert found == batches
        assert not parts


@pytest.mark.parametrize("size", [100, 1000])
def test_a_batch_is_one_segment(size: int) -> None:
    assert len(written([bytes(size)] * (BATCH_BYTES // size))) <= SEGMENT


@pytest.mark.skipif(bool(why_not(NORM)), reason="NORM is not here")
def test_a_real_stream_is_measured() -> None:
    run = measure("norm", "rate", Load(senders=3), seconds=0.2, warm_up=0.1)
    assert run.value > 0
    assert run.missing == 0
