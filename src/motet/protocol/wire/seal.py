"""Sealed datagrams: without the group's key nobody can read, alter, forge or replay a datagram.

    magic 2 bytes  version u8  key u8  incarnation u64  counter u64  salt u64  | ciphertext | tag 16 bytes

The cipher is AES-256-GCM, the faster one on current processors (benchmarks/sealing.py compares). The header is
authenticated data. Every incarnation seals with a key of its own, derived from the group's key, the incarnation and a
salt by HKDF (RFC 5869, expand only: the group's key is uniformly random), under a counter that starts at 1 and
continues through a key rotation. The salt is drawn from the system's entropy at every start. So no nonce is ever used
twice: not by two members that share a key, not by a process that restarts, and not by two that were started from copies
of one machine and drew the same incarnation. Only a process that is cloned while it runs, with its memory, repeats its
salt. One datagram for many receivers is sealed once.

A key proves that some member of the group sent a datagram, not which one.

Replay. For each recent sender, an `Opener` remembers the highest counter and which of the `window` counters up to it
were received; a counter that was received or is older is rejected. Counters below the first one received of a sender
count as received. At most `most_senders` are remembered, and the least recent is evicted first; only a datagram that
authenticates makes an entry, so forged traffic evicts nobody. A recording of an evicted sender authenticates again.
That is harmless, because the protocols above do not rely on this window: frames of unknown incarnations are dropped, a
discovery answer must contain the nonce of the last request, and frames of a stream have a view tag and a seqno. The
window makes rejecting replays cheap.

Rotation without downtime takes three rounds over all members, in any order within a round: add the new key as a second
one; then move the new key to the front, where it seals; then remove the old key.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from motet.errors import ConfigError
from motet.protocol.core.checks import require_between
from motet.protocol.core.counters import Count

MAGIC = b"mS"
VERSION = 2
KEY_BYTES = 32
SEAL_HEADER = Struct("<2sBBQQQ")
TAG_BYTES = 16
SEAL_OVERHEAD = SEAL_HEADER.size + TAG_BYTES  # How much longer a sealed datagram is than the plain one.
SALT_BITS = 64
MOST_KEYS = 8  # Two are enough to rotate.
MOST_CIPHERS = 2 * MOST_KEYS  # Per sender, which has one salt and seals with one key at a time.
KEY_FORMS = (
    "32 bytes as base64 (44 characters) or as hexadecimal digits (64), perhaps with a number 0 to 255 "
    "and a colon before them; `motet key` prints a new one"
)

_REMEDY = "make one with `motet key` and give it to every member"
_NONCE = Struct("<4xQ")
_SUBKEY = b"motet sealed datagram, sender "
_KEY_ID = b"motet key id"


class _HiddenKey(bytes):
    """A key that neither its repr nor a deep copy reveals: `dataclasses.asdict` makes deep copies."""

    def __repr__(self) -> str:
        return "(not shown)"

    def __deepcopy__(self, memo: object) -> bytes:
        return b"(not shown)"


class SealFault(Enum):
    """Why a datagram was rejected, and its counter."""

    NOT_SEALED = ("is not sealed", Count.SEAL_MISSING)
    TRUNCATED = ("is too short to be sealed", Count.SEAL_TRUNCATED)
    OTHER_VERSION = ("is sealed in a way that this version does not know", Count.SEAL_OTHER_VERSION)
    UNKNOWN_KEY = ("names a key that this member does not hold", Count.SEAL_KEY_UNKNOWN)
    BROKEN = ("was sealed with another key, or altered on its way", Count.SEAL_BROKEN)
    REPLAYED = ("was received before", Count.SEAL_REPLAYED)
    TOO_OLD = ("is older than the replay window reaches", Count.SEAL_TOO_OLD)

    def __init__(self, text: str, count: Count) -> None:
        self.text = text
        self.count = count


@dataclass(frozen=True, slots=True)
class SealReject:
    fault: SealFault
    key_id: int | None = None  # As the datagram claims; None if it has no such field.
    incarnation: int | None = None

    def __str__(self) -> str:
        who = "" if self.incarnation is None else f" of {self.incarnation >> 48:04x} under key {self.key_id}"
        return f"a datagram{who} {self.fault.text}"


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys that open datagrams, by id, and the id of the one that seals. Its repr shows no key."""

    keys: Mapping[int, bytes] = field(repr=False)
    current: int

    def __post_init__(self) -> None:
        require_between("number of keys", len(self.keys), 1, MOST_KEYS)
        for key_id, key in self.keys.items():
            require_between("key id", key_id, 0, 255)
            require_between(f"length of key {key_id}", len(key), KEY_BYTES, KEY_BYTES)
            if not any(key):
                raise ConfigError(f"key {key_id} is nothing but zeros, as of a secret that was never set; {_REMEDY}")
        object.__setattr__(self, "keys", {key_id: _HiddenKey(key) for key_id, key in self.keys.items()})
        if self.current not in self.keys:
            raise ConfigError(f"key {self.current} is to seal, but is not in the ring; allowed are: {_ids(self.keys)}")

    def __deepcopy__(self, memo: object) -> Keyring:
        return self  # it never changes, and a copy of its keys would be no keys

    @classmethod
    def of(cls, texts: Iterable[str]) -> Keyring:
        """From keys as people write them: `KEY` or `ID:KEY`. The first one seals, all of them open."""
        keys: dict[int, bytes] = {}
        for place, text in enumerate(texts, start=1):
            key_id, key = parse_key(text, place)
            if keys.get(key_id, key) != key:
                raise ConfigError(
                    f"key number {place} has the id {key_id} of another key; give one of them an id of its own, "
                    f"like {(key_id + 1) % 256}:KEY, at every member"
                )
            keys[key_id] = key
        if not keys:
            raise ConfigError(f"a keyring without a key opens nothing; a key is {KEY_FORMS}")
        return cls(keys, next(iter(keys)))

    def subkey(self, key_id: int, incarnation: int, salt: int) -> bytes:
        """The key that one incarnation seals with."""
        info = _SUBKEY + incarnation.to_bytes(8, "little") + salt.to_bytes(8, "little")
        return HKDFExpand(SHA256(), KEY_BYTES, info).derive(self.keys[key_id])


def parse_key(text: str, place: int = 1) -> tuple[int, bytes]:
    """The id and the bytes of one key. Without a number before it, the id follows from the key itself."""
    head, colon, tail = text.strip().rpartition(":")
    key = _key_bytes(tail)
    if key is None:  # The error must not show the text: it may be a key with a single typing error.
        raise ConfigError(f"key number {place} ({len(tail)} characters) is no key; allowed are {KEY_FORMS}")
    if not colon:
        return _natural_id(key), key
    if not head.isdecimal() or int(head) > 255:
        raise ConfigError(f"the id of key number {place} is {head[:12]!r}; allowed are 0 to 255")
    return int(head), key


def format_key(key: bytes) -> str:
    """The text form that `parse_key` accepts; `key` is 32 bytes of the system's entropy."""
    require_between("length of the key", len(key), KEY_BYTES, KEY_BYTES)
    return b64encode(key).decode()


def is_sealed(datagram: bytes) -> bool:
    """Whether the datagram claims to be sealed, so that a member without a key can tell its operator."""
    return datagram[: len(MAGIC)] == MAGIC


class Sealer:
    """Seals the datagrams of one incarnation. Two sealers with the same incarnation and salt would reuse nonces."""

    def __init__(self, keyring: Keyring, incarnation: int, salt: int) -> None:
        """`salt`: SALT_BITS of the system's entropy, drawn for this sealer."""
        self._incarnation = incarnation
        self._salt = salt
        self._counter = 0
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """Seal with this keyring's current key. The counter continues, because replay windows are per sender."""
        self._key_id = keyring.current
        self._cipher = AESGCM(keyring.subkey(keyring.current, self._incarnation, self._salt))

    def seal(self, datagram: bytes) -> bytes:
        self._counter += 1
        header = SEAL_HEADER.pack(MAGIC, VERSION, self._key_id, self._incarnation, self._counter, self._salt)
        return header + self._cipher.encrypt(_NONCE.pack(self._counter), datagram, header)


class ReplayWindow:
    """The counters received of one sender. Invariant: bit i stands for `highest - i`, and bit 0 is set."""

    __slots__ = ("_highest", "_mask", "_seen")

    def __init__(self, width: int, first: int) -> None:
        self._mask = (1 << width) - 1
        self._highest = first
        self._seen = self._mask  # Counters before the first one received count as received.

    def fault(self, counter: int) -> SealFault | None:
        behind = self._highest - counter
        if behind < 0:
            return None
        if self._mask >> behind == 0:
            return SealFault.TOO_OLD
        return SealFault.REPLAYED if self._seen >> behind & 1 else None

    def mark(self, counter: int) -> None:
        """Record a counter. Call only if `fault` returned None and the datagram has authenticated."""
        ahead = counter - self._highest
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        self._highest = counter
        self._seen = ((self._seen << ahead) & self._mask) | 1 if ahead < self._mask.bit_length() else 1


_CipherId = tuple[int, int]  # key id, salt


@dataclass(slots=True)
class _KnownSender:
    window: ReplayWindow
    ciphers: dict[_CipherId, AESGCM]


class Opener:
    def __init__(self, keyring: Keyring, *, window: int = 1024, most_senders: int = 1024) -> None:
        """For each of `most_senders`, `window` counters are remembered in 128 bytes, and a cipher of about 1 kB."""
        require_between("replay window", window, 64, 65_536)
        require_between("most_senders", most_senders, 1, 65_536)
        self._keyring = keyring
        self._width = window
        self._most_senders = most_senders
        self._senders: OrderedDict[int, _KnownSender] = OrderedDict()

    def rekey(self, keyring: Keyring) -> None:
        """Open with these keys. Replay windows stay; ciphers are derived again."""
        self._keyring = keyring
        for sender in self._senders.values():
            sender.ciphers.clear()

    @property
    def remembered(self) -> int:
        return len(self._senders)

    def open(self, sealed: bytes) -> bytes | SealReject:
        """Accepts any bytes; returns a datagram only if it was sealed with a known key and not received before."""
        if (flaw := _flaw(sealed)) is not None:
            return SealReject(flaw)
        _, _, key_id, incarnation, counter, salt = SEAL_HEADER.unpack_from(sealed)
        if key_id not in self._keyring.keys:
            return SealReject(SealFault.UNKNOWN_KEY, key_id, incarnation)
        sender = self._senders.get(incarnation)
        if sender is not None and (fault := sender.window.fault(counter)) is not None:
            return SealReject(fault, key_id, incarnation)
        cipher = self._cipher(sender, incarnation, (key_id, salt))
        header, rest = sealed[: SEAL_HEADER.size], memoryview(sealed)[SEAL_HEADER.size :]
        try:
            datagram = cipher.decrypt(_NONCE.pack(counter), rest, header)
        except InvalidTag:
            return SealReject(SealFault.BROKEN, key_id, incarnation)
        self._remember(sender, incarnation, counter, (key_id, salt), cipher)
        return datagram

    def _cipher(self, sender: _KnownSender | None, incarnation: int, which: _CipherId) -> AESGCM:
        known = sender.ciphers.get(which) if sender is not None else None
        key_id, salt = which
        return known or AESGCM(self._keyring.subkey(key_id, incarnation, salt))

    def _remember(
        self, sender: _KnownSender | None, incarnation: int, counter: int, which: _CipherId, cipher: AESGCM
    ) -> None:
        if sender is not None:
            sender.window.mark(counter)
            if which not in sender.ciphers and len(sender.ciphers) >= MOST_CIPHERS:
                sender.ciphers.clear()
            sender.ciphers[which] = cipher
            self._senders.move_to_end(incarnation)
            return
        self._senders[incarnation] = _KnownSender(ReplayWindow(self._width, counter), {which: cipher})
        if len(self._senders) > self._most_senders:
            self._senders.popitem(last=False)


def _flaw(sealed: bytes) -> SealFault | None:
    """Checks that need no key."""
    if not is_sealed(sealed):
        return SealFault.NOT_SEALED
    if len(sealed) < SEAL_OVERHEAD:
        return SealFault.TRUNCATED
    return None if sealed[2] == VERSION else SealFault.OTHER_VERSION


def _key_bytes(text: str) -> bytes | None:
    try:
        key = bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else b64decode(text, validate=True)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def _natural_id(key: bytes) -> int:
    return HKDFExpand(SHA256(), 1, _KEY_ID).derive(key)[0]


def _ids(keys: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(keys)))
