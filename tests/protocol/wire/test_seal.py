"""Sealed datagrams: what is opened is what was sealed, once; everything else is refused, typed, and costs nothing."""

import tracemalloc
from base64 import b64encode
from copy import deepcopy
from dataclasses import asdict
from random import Random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import example, given, settings
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.protocol.core.counters import Count
from motet.protocol.wire.codec import MAGIC as PLAIN_MAGIC
from motet.protocol.wire.seal import (
    KEY_BYTES,
    MAGIC,
    MOST_CIPHERS,
    SEAL_HEADER,
    SEAL_OVERHEAD,
    VERSION,
    Keyring,
    Opener,
    ReplayWindow,
    Sealer,
    SealFault,
    SealReject,
    format_key,
    is_sealed,
    parse_key,
)

OLD, NEW, FOREIGN = (bytes([letter]) * KEY_BYTES for letter in b"onf")
RING = Keyring({1: OLD}, 1)
LIFE = 0xA1B2_C3D4_0000_0001
SALT = 0x1817_1615_1413_1211


def sealed_stream(count: int, ring: Keyring = RING, incarnation: int = LIFE) -> list[bytes]:
    sealer = Sealer(ring, incarnation, SALT)
    return [sealer.seal(b"datagram %d" % number) for number in range(1, count + 1)]


def fault_of(answer: bytes | SealReject) -> SealFault | None:
    return answer.fault if isinstance(answer, SealReject) else None


# What goes in comes out


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 2**64 - 1), st.integers(0, 255))
@example([b"", bytes(65_000)], 2**64 - 1, 255)
def test_what_is_opened_is_what_was_sealed(datagrams: list[bytes], incarnation: int, key_id: int) -> None:
    ring = Keyring({key_id: NEW}, key_id)
    sealer, opener = Sealer(ring, incarnation, SALT), Opener(ring)
    for datagram in datagrams:
        sealed = sealer.seal(datagram)
        assert len(sealed) == len(datagram) + SEAL_OVERHEAD
        assert is_sealed(sealed)
        assert opener.open(sealed) == datagram


def test_the_envelope_byte_by_byte() -> None:
    sealed = Sealer(Keyring({7: OLD}, 7), 0x0807_0605_0403_0201, SALT).seal(b"x")
    assert sealed[:20] == b"mS\x02\x07" + bytes(range(1, 9)) + b"\x01" + bytes(7)
    assert sealed[20:28] == bytes(range(0x11, 0x19))
    assert len(sealed) == 28 + 1 + 16
    assert SEAL_OVERHEAD == 44


def test_nothing_of_the_content_shows() -> None:
    assert b"secret" not in b"".join(Sealer(RING, LIFE, SALT).seal(b"secret" * 20) for _ in range(50))


def test_a_sealed_datagram_never_looks_like_a_plain_one() -> None:
    assert MAGIC != PLAIN_MAGIC
    assert not is_sealed(PLAIN_MAGIC + bytes(100))


# What was altered, or sealed by others


def test_no_bit_of_a_sealed_datagram_can_be_altered() -> None:
    """The key id is in the header, too: another id that we hold is no way around."""
    ring = Keyring({1: OLD, 0: NEW, 3: FOREIGN}, 1)
    (sealed,) = sealed_stream(1, ring)
    for place in range(len(sealed)):
        for bit in range(8):
            altered = bytearray(sealed)
            altered[place] ^= 1 << bit
            assert isinstance(Opener(ring).open(bytes(altered)), SealReject), f"bit {bit} of byte {place}"


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (0, SealFault.NOT_SEALED),
        (1, SealFault.NOT_SEALED),
        (2, SealFault.OTHER_VERSION),
        (3, SealFault.UNKNOWN_KEY),
        (4, SealFault.BROKEN),
        (12, SealFault.BROKEN),
        (20, SealFault.BROKEN),
        (-1, SealFault.BROKEN),
    ],
)
def test_an_altered_byte_is_refused_for_what_it_stands_for(place: int, fault: SealFault) -> None:
    altered = bytearray(sealed_stream(1)[0])
    altered[place] ^= 0x55
    assert fault_of(Opener(RING).open(bytes(altered))) is fault


def test_every_cut_is_refused() -> None:
    (sealed,) = sealed_stream(1)
    faults = [fault_of(Opener(RING).open(sealed[:length])) for length in range(len(sealed))]
    assert faults[:2] == [SealFault.NOT_SEALED] * 2
    assert set(faults[2:SEAL_OVERHEAD]) == {SealFault.TRUNCATED}
    assert set(faults[SEAL_OVERHEAD:]) == {SealFault.BROKEN}


def test_another_key_under_the_same_id_does_not_open() -> None:
    (sealed,) = sealed_stream(1, Keyring({1: FOREIGN}, 1))
    assert Opener(RING).open(sealed) == SealReject(SealFault.BROKEN, 1, LIFE)


def test_a_key_that_was_taken_away_does_not_open() -> None:
    (sealed,) = sealed_stream(1)
    rejected = Opener(Keyring({2: NEW}, 2)).open(sealed)
    assert rejected == SealReject(SealFault.UNKNOWN_KEY, 1, LIFE)
    assert str(rejected) == "a datagram of a1b2 under key 1 names a key that this member does not hold"


def test_a_plain_datagram_does_not_open() -> None:
    rejected = Opener(RING).open(PLAIN_MAGIC + bytes(200))
    assert rejected == SealReject(SealFault.NOT_SEALED)
    assert str(rejected) == "a datagram is not sealed"


def test_a_datagram_cannot_be_passed_off_as_of_another_sender_or_counter() -> None:
    sealed = sealed_stream(1)[0]
    for incarnation, counter in ((LIFE + 1, 1), (LIFE, 2)):
        forged = SEAL_HEADER.pack(MAGIC, VERSION, 1, incarnation, counter, SALT) + sealed[SEAL_HEADER.size :]
        assert fault_of(Opener(RING).open(forged)) is SealFault.BROKEN


def test_every_fault_has_a_counter_of_its_own() -> None:
    counts = [fault.count for fault in SealFault]
    assert len(set(counts)) == len(counts)
    assert set(counts) == {count for count in Count if count.value.startswith("seal_")}


# Nonces


def test_no_key_and_nonce_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over members that share a key, restarts, and rotations there and back."""
    used: list[tuple[bytes, bytes]] = []

    class Recording:
        def __init__(self, key: bytes) -> None:
            self._key = key

        def encrypt(self, nonce: bytes, data: bytes, header: bytes) -> bytes:
            used.append((self._key, nonce))
            return AESGCM(self._key).encrypt(nonce, data, header)

    monkeypatch.setattr("motet.protocol.wire.seal.AESGCM", Recording)
    both, turned = Keyring({1: OLD, 2: NEW}, 1), Keyring({1: OLD, 2: NEW}, 2)
    rng = Random(7)
    for _ in range(20):  # lives of a few processes
        sealer = Sealer(both, rng.getrandbits(64) or 1, rng.getrandbits(64))
        for ring in (both, turned, both, turned):
            sealer.rekey(ring)
            for _ in range(25):
                sealer.seal(b"the same words")
    assert len(used) == 20 * 4 * 25
    assert len(set(used)) == len(used)


def test_every_life_seals_with_a_key_of_its_own() -> None:
    subkeys = {RING.subkey(1, life, SALT) for life in range(1, 200)}
    assert len(subkeys) == 199
    assert all(len(subkey) == KEY_BYTES and subkey != OLD for subkey in subkeys)


def test_whoever_holds_the_key_can_seal_in_any_name() -> None:
    """A key proves that a member spoke, not which one: members trust each other, and the threat model says so."""
    opener = Opener(RING)
    assert opener.open(Sealer(RING, LIFE, SALT).seal(b"mine")) == b"mine"
    taken_over = Sealer(RING, LIFE, SALT + 1)  # another process, in the name of the first
    taken_over.seal(b"under a counter that the first has used")
    assert opener.open(taken_over.seal(b"not mine")) == b"not mine"


def test_an_old_key_still_reads_what_was_recorded_under_it() -> None:
    """There is no forward secrecy, and the threat model says so."""
    recorded = sealed_stream(3, Keyring({1: OLD}, 1))
    assert Opener(Keyring({1: OLD, 2: NEW}, 2)).open(recorded[0]) == b"datagram 1"


def test_two_starts_from_copies_of_one_machine_share_no_key_and_no_nonce() -> None:
    """The incarnation may be the same, and the counter begins anew; the salt alone tells them apart."""
    one, other = Sealer(RING, LIFE, SALT).seal(b"the same words"), Sealer(RING, LIFE, SALT + 1).seal(b"the same words")
    assert one[SEAL_HEADER.size :] != other[SEAL_HEADER.size :]
    assert RING.subkey(1, LIFE, SALT) != RING.subkey(1, LIFE, SALT + 1)
    assert Opener(RING).open(one) == Opener(RING).open(other) == b"the same words"


def test_the_ciphers_of_a_sender_with_many_salts_are_bounded() -> None:
    opener = Opener(RING)
    for salt in range(1, 100):
        sealer = Sealer(RING, LIFE, salt)
        sealed = [sealer.seal(b"x") for _ in range(salt)]
        assert opener.open(sealed[-1]) == b"x"  # a holder of the key may do so
        assert len(opener._senders[LIFE].ciphers) <= MOST_CIPHERS


# Repetition


def test_a_stream_that_is_repeated_is_refused() -> None:
    opener, stream = Opener(RING), sealed_stream(50)
    assert all(isinstance(opener.open(sealed), bytes) for sealed in stream)
    assert {fault_of(opener.open(sealed)) for sealed in stream} == {SealFault.REPLAYED}


def test_out_of_order_within_the_window_each_opens_once() -> None:
    opener, stream = Opener(RING, window=64), sealed_stream(65)
    opener.open(stream[0])
    rest = stream[1:]
    Random(3).shuffle(rest)
    assert all(isinstance(opener.open(sealed), bytes) for sealed in rest)
    assert all(fault_of(opener.open(sealed)) in (SealFault.REPLAYED, SealFault.TOO_OLD) for sealed in stream)


def test_what_is_older_than_the_window_is_refused_though_it_never_came() -> None:
    opener, stream = Opener(RING, window=64), sealed_stream(100)
    opener.open(stream[0])
    opener.open(stream[-1])  # number 100: the window reaches down to 37
    assert fault_of(opener.open(stream[35])) is SealFault.TOO_OLD
    assert opener.open(stream[36]) == b"datagram 37"
    assert fault_of(opener.open(stream[36])) is SealFault.REPLAYED


def test_what_a_sender_said_before_we_heard_of_it_counts_as_seen() -> None:
    opener, stream = Opener(RING), sealed_stream(10)
    assert opener.open(stream[5]) == b"datagram 6"
    assert [fault_of(opener.open(sealed)) for sealed in stream[:6]] == [SealFault.REPLAYED] * 6
    assert opener.open(stream[6]) == b"datagram 7"


def test_a_broken_datagram_leaves_the_window_as_it_was() -> None:
    """Or else a forger could shut out a sender by naming a counter far ahead."""
    opener, stream = Opener(RING), sealed_stream(3)
    opener.open(stream[0])
    forged = SEAL_HEADER.pack(MAGIC, VERSION, 1, LIFE, 2**64 - 1, SALT) + bytes(100)
    assert fault_of(opener.open(forged)) is SealFault.BROKEN
    assert opener.open(stream[1]) == b"datagram 2"


def test_the_window_goes_on_through_a_change_of_keys() -> None:
    ring, turned = Keyring({1: OLD, 2: NEW}, 1), Keyring({1: OLD, 2: NEW}, 2)
    sealer, opener = Sealer(ring, LIFE, SALT), Opener(ring)
    before = sealer.seal(b"before")
    opener.open(before)
    sealer.rekey(turned)
    opener.rekey(turned)
    assert opener.open(sealer.seal(b"after")) == b"after"
    assert fault_of(opener.open(before)) is SealFault.REPLAYED


@given(st.integers(64, 130), st.integers(0, 2**64 - 1), st.lists(st.integers(-140, 140), max_size=60))
def test_the_window_agrees_with_a_set_of_all_that_was_seen(width: int, first: int, steps: list[int]) -> None:
    window, highest = ReplayWindow(width, first), first
    seen = {first}
    for step in steps:
        counter = min(max(0, highest + step), 2**64 - 1)
        expected = None
        if counter <= highest - width:
            expected = SealFault.TOO_OLD
        elif counter in seen or counter <= first:
            expected = SealFault.REPLAYED
        assert window.fault(counter) is expected
        if expected is None:
            window.mark(counter)
            seen.add(counter)
            highest = max(highest, counter)


# Many senders


def test_the_sender_that_was_silent_longest_is_forgotten_first() -> None:
    opener = Opener(RING, most_senders=3)
    streams = {life: sealed_stream(3, RING, life) for life in range(1, 5)}
    for life in (1, 2, 3):
        opener.open(streams[life][0])
    opener.open(streams[1][1])  # 2 is now the one silent longest
    opener.open(streams[4][0])
    assert opener.remembered == 3
    assert fault_of(opener.open(streams[1][0])) is SealFault.REPLAYED
    assert fault_of(opener.open(streams[3][0])) is SealFault.REPLAYED
    assert opener.open(streams[2][0]) == b"datagram 1"  # forgotten: the protocols above do not rely on the window


def test_noise_pushes_nobody_out() -> None:
    opener, stream = Opener(RING, most_senders=2), sealed_stream(2)
    opener.open(stream[0])
    for life in range(1, 100):
        opener.open(SEAL_HEADER.pack(MAGIC, VERSION, 1, life, 1, SALT) + bytes(40))
    assert opener.remembered == 1
    assert fault_of(opener.open(stream[0])) is SealFault.REPLAYED


# Rotation


def test_three_members_rotate_without_losing_a_datagram() -> None:
    old, both, turned, new = (
        Keyring({1: OLD}, 1),
        Keyring({1: OLD, 2: NEW}, 1),
        Keyring({1: OLD, 2: NEW}, 2),
        Keyring({2: NEW}, 2),
    )
    lives = (11, 22, 33)
    sealers = {life: Sealer(old, life, SALT) for life in lives}
    openers = {life: Opener(old) for life in lives}

    def everybody_hears_everybody() -> None:
        for life, sealer in sealers.items():
            sealed = sealer.seal(b"still here")
            assert all(opener.open(sealed) == b"still here" for other, opener in openers.items() if other != life)

    everybody_hears_everybody()
    for ring in (both, turned, new):
        for life in lives:  # one after the other: in between, members have different rings
            sealers[life].rekey(ring)
            openers[life].rekey(ring)
            everybody_hears_everybody()
    late = sealed_stream(1, old, 44)[0]
    assert fault_of(openers[11].open(late)) is SealFault.UNKNOWN_KEY


# Bytes that mean harm


def test_garbage_is_refused_and_leaves_nothing_behind() -> None:
    rng, opener = Random(1), Opener(RING)
    stream = sealed_stream(2)
    opener.open(stream[0])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(100_000):
        garbage = rng.randbytes(number % 90)
        if number % 3 == 0:
            garbage = MAGIC + b"\x01\x01" + garbage
        assert isinstance(opener.open(garbage), SealReject)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 10_000
    assert opener.remembered == 1
    assert opener.open(stream[1]) == b"datagram 2"


@settings(max_examples=300)
@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_are_answered(data: bytes, has_magic: bool) -> None:
    answer = Opener(RING).open((MAGIC + b"\x01" if has_magic else b"") + data)
    assert isinstance(answer, SealReject)


# Keys as people write them


def test_a_key_can_be_base64_or_hexadecimal() -> None:
    key = bytes(range(32))
    assert format_key(key) == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert parse_key(format_key(key)) == parse_key(key.hex()) == parse_key(f" {key.hex().upper()}\n")
    assert parse_key(f"5:{key.hex()}") == (5, key)


def test_the_first_key_seals_and_all_open() -> None:
    ring = Keyring.of([f"2:{format_key(NEW)}", f"1:{OLD.hex()}"])
    assert (ring.current, dict(ring.keys)) == (2, {2: NEW, 1: OLD})


def test_a_key_without_an_id_has_the_same_one_everywhere() -> None:
    one, other = Keyring.of([format_key(OLD), format_key(NEW)]), Keyring.of([NEW.hex(), OLD.hex()])
    assert dict(one.keys) == dict(other.keys)
    assert one.current != other.current


def test_a_key_named_twice_is_one_key() -> None:
    assert len(Keyring.of([OLD.hex(), format_key(OLD)]).keys) == 1


def test_a_ring_never_shows_a_key() -> None:
    ring = Keyring({1: OLD}, 1)
    assert repr(ring) == "Keyring(current=1)"


BAD = b64encode(bytes(31)).decode()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["hunter2"], "key number 1 (7 characters) is no key; allowed are 32 bytes as base64 (44 characters) or as"),
        ([OLD.hex(), BAD], f"key number 2 ({len(BAD)} characters) is no key"),
        (["zz" * 32], "key number 1 (64 characters) is no key"),
        (["ключ"], "key number 1 (4 characters) is no key"),
        ([""], "key number 1 (0 characters) is no key"),
        ([f"256:{OLD.hex()}"], "the id of key number 1 is '256'; allowed are 0 to 255"),
        ([f"one:{OLD.hex()}"], "the id of key number 1 is 'one'; allowed are 0 to 255"),
        ([f"1:{OLD.hex()}", f"1:{NEW.hex()}"], "key number 2 has the id 1 of another key; give one of them an id"),
        ([], "a keyring without a key opens nothing"),
        (
            [f"7:{bytes(KEY_BYTES).hex()}"],
            "key 7 is nothing but zeros, as of a secret that was never set; make one with",
        ),
        ([OLD.hex(), b64encode(bytes(KEY_BYTES)).decode()], "is nothing but zeros"),
        (
            [f"{n}:{bytes([n]).hex() * 32}" for n in range(1, 10)],
            "number of keys = 9 is outside what is allowed: 1 to 8",
        ),
    ],
)
def test_a_bad_key_is_told_without_showing_it(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Keyring.of(texts)
    assert message in str(caught.value)
    assert OLD.hex() not in str(caught.value)


def test_a_ring_shows_its_keys_neither_as_text_nor_as_a_dict() -> None:
    ring = Keyring({1: OLD}, 1)
    shown = f"{ring} {ring.keys} {asdict(ring)}"
    assert repr(OLD) not in shown
    assert OLD not in asdict(ring)["keys"].values()
    assert deepcopy(ring).subkey(1, LIFE, SALT) == ring.subkey(1, LIFE, SALT)


def test_a_ring_is_checked() -> None:
    with pytest.raises(ConfigError, match="key 3 is to seal, but is not in the ring; allowed are: 1, 2"):
        Keyring({2: NEW, 1: OLD}, 3)
    with pytest.raises(ConfigError, match="length of key 1 = 16 is outside what is allowed: 32 to 32"):
        Keyring({1: bytes(16)}, 1)
    with pytest.raises(ConfigError, match="key id = 256 is outside what is allowed: 0 to 255"):
        Keyring({256: OLD}, 256)


@pytest.mark.parametrize(
    ("name", "settings_"), [("replay window", {"window": 63}), ("most_senders", {"most_senders": 0})]
)
def test_the_bounds_of_an_opener_are_checked(name: str, settings_: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{name} = "):
        Opener(RING, **settings_)
