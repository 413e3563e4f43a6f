"""Digests of ranges: equal for equal rows, and different for different rows except with negligible probability.

A digest is GHASH with a random key per audit. The content of journals is fixed before the key is drawn, so two ranges
of n bytes that differ have the same digest with probability n / 2^132, whoever wrote them. GHASH runs at the speed of
memory, ten times as fast as SHA-256.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.ciphers.modes import GCM
from numpy.typing import NDArray

KEY_BYTES = 16
_NONCE = bytes(12)  # Constant: with each key only one kind of data is authenticated, and nothing is encrypted.


class Digest:
    """A digest in progress. Callers feed counts before the values, so that field boundaries are unambiguous."""

    def __init__(self, key: bytes) -> None:
        self._mac = Cipher(AES128(key), GCM(_NONCE)).encryptor()

    def numbers(self, values: NDArray[np.integer]) -> None:
        if len(values):
            self._mac.authenticate_additional_data(np.ascontiguousarray(values).view(np.uint8).data)

    def names(self, codes: NDArray[np.integer], texts: Sequence[str]) -> None:
        self.numbers(np.array([_name_hash(text) for text in texts], dtype=np.uint64)[codes])

    def binary(self, splits: Sequence[pa.Array]) -> None:
        """Lengths (-1 for null), then bytes, so that the digest does not depend on batch boundaries."""
        lengths, texts = zip(*(lengths_and_bytes(split) for split in splits), strict=True)
        for length in lengths:
            self.numbers(length)
        for text in texts:
            if len(text):
                self._mac.authenticate_additional_data(text)

    def value(self) -> bytes:
        self._mac.finalize()
        return self._mac.tag


def lengths_and_bytes(column: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, offsets_buffer, data = column.buffers()
    count = len(column)
    if column.null_count == count:
        return np.full(count, -1, np.int32), memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, column.offset * 4)
    lengths = offsets[1:] - offsets[:-1]
    if column.null_count:
        lengths[np.asarray(column.is_null())] = -1
    if data is None or not len(data):
        return lengths, memoryview(b"")
    return lengths, memoryview(data).cast("B")[int(offsets[0]) : int(offsets[-1])]


@lru_cache(maxsize=4096)
def _name_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
