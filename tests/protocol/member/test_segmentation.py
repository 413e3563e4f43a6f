"""When large datagrams are cut: by what is lost of them, one step at a time, and back when little is lost."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from motet.protocol.member.segmentation import (
    LADDER,
    QUIET_FRAMES,
    RECENT_FRAMES,
    SETTLING_FRAMES,
    WHOLE_FRAMES,
    WHOLE_LOST,
    Mode,
    Segmentation,
)

LARGE, SMALL, PATH = 32_000, 1_000, 1_472


def machine(packet_bytes: int = 1_400, path: int = PATH) -> Segmentation:
    made = Segmentation(packet_bytes)
    made.know_path(path)
    return made


def send(machine: Segmentation, frames: int, lost: float = 0.0, *, size: int = LARGE) -> None:
    """So many frames to one receiver; this share of them, evenly spread, is asked for again."""
    owed = 0.0
    for _ in range(frames):
        machine.sent(size, 1)
        owed += lost
        while owed >= 1:
            owed -= 1
            machine.asked(size)
        machine._check()


def lossy(machine: Segmentation, steps: int) -> None:
    for _ in range(steps):
        mode = machine.mode
        while machine.mode is mode:
            send(machine, 1)
            send(machine, 1, 1.0)


def test_without_loss_datagrams_leave_in_one_piece() -> None:
    it = machine()
    send(it, 10 * QUIET_FRAMES)
    assert it.mode is Mode.WHOLE
    assert not it.cuts(LARGE)


def test_some_lost_frames_are_enough_to_cut_and_small_datagrams_are_never_cut() -> None:
    it = machine()
    for _ in range(WHOLE_LOST):
        it.sent(LARGE, 2)
        it.asked(LARGE)
    assert it.mode is Mode.LIGHT
    assert it.cuts(PATH + 1)
    assert not it.cuts(PATH)


def test_a_lost_frame_now_and_then_is_no_reason() -> None:
    it = machine()
    send(it, 40 * WHOLE_FRAMES, (WHOLE_LOST - 2) / WHOLE_FRAMES)
    assert it.mode is Mode.WHOLE


def test_loss_of_small_frames_is_no_reason() -> None:
    it = machine()
    send(it, 2_000, 0.5, size=SMALL)
    assert it.mode is Mode.WHOLE
    assert it.frames == it.lost == 0


def test_on_a_path_that_carries_them_in_one_packet_nothing_is_cut() -> None:
    for it in (machine(path=65_508), machine(path=0), machine(packet_bytes=0)):
        send(it, 2_000, 0.5)
        assert it.mode is Mode.WHOLE


def test_each_step_waits_for_what_left_before_it() -> None:
    it = machine()
    send(it, 2 * WHOLE_LOST, 0.5)
    modes = [it.mode]
    for frames in (SETTLING_FRAMES, RECENT_FRAMES):
        send(it, frames, 0.5)
        modes.append(it.mode)
    assert modes == [Mode.LIGHT, Mode.LIGHT, Mode.GRID]


def test_a_short_burst_of_loss_is_no_reason_for_more_parity() -> None:
    it = machine()
    lossy(it, 1)
    assert it.mode is Mode.LIGHT
    send(it, SETTLING_FRAMES)
    for _ in range(5):
        send(it, RECENT_FRAMES, 0.2)
        send(it, 2 * RECENT_FRAMES)
    assert it.mode is Mode.LIGHT


def test_it_comes_back_step_by_step_when_nothing_is_lost() -> None:
    it = machine()
    lossy(it, 3)
    assert it.mode is Mode.DOUBLE
    seen = [it.mode]
    for _ in range(len(LADDER)):
        send(it, SETTLING_FRAMES + QUIET_FRAMES + RECENT_FRAMES)
        seen.append(it.mode)
    assert seen[:4] == [Mode.DOUBLE, Mode.GRID, Mode.LIGHT, Mode.WHOLE]


def test_whoever_relapses_waits_twice_as_long() -> None:
    it = machine()
    waits = []
    for _ in range(4):
        lossy(it, 1)
        frames = 0
        while it.cuts(LARGE):
            send(it, 64)
            frames += 64
        waits.append(frames - SETTLING_FRAMES)
        send(it, SETTLING_FRAMES)
    assert all(1.5 < later / earlier < 2.5 for earlier, later in pairwise(waits))


def test_where_whole_datagrams_are_lost_parity_is_given_up() -> None:
    """As injected faults lose them, and full buffers: half of all, however they are cut."""
    it, rng = machine(), Random(1)
    for _ in range(8_000):
        it.sent(LARGE, 1)
        if rng.random() < 0.5:
            it.asked(LARGE)
        it._check()
    assert it.mode is Mode.LIGHT


def test_where_packets_are_lost_full_parity_is_kept() -> None:
    it, rng = machine(), Random(2)
    arrives = {Mode.WHOLE: 0.01, Mode.LIGHT: 0.08, Mode.GRID: 0.66, Mode.DOUBLE: 0.9}
    for _ in range(8_000):
        it.sent(LARGE, 1)
        if rng.random() > arrives[it.mode]:
            it.asked(LARGE)
    assert it.mode is Mode.DOUBLE


def test_a_wider_path_ends_it() -> None:
    it = machine()
    lossy(it, 2)
    it.know_path(0)
    assert it.mode is Mode.WHOLE
