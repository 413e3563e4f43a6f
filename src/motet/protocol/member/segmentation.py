"""Whether large datagrams are left to IP to cut, or cut by us into segments with parity, by what is lost of them.

    path          a datagram that fits one packet of the path is never cut, and on loopback none is cut
    WHOLE         large datagrams leave in one piece, which is the fastest where nothing is lost; IP cuts them
    LIGHT         they are cut into segments, with parity for every 8 of them
    GRID          with parity for columns of 5 and for rows
    DOUBLE        the same, and each segment leaves twice

    4 of 256 large frames are asked for again                 -> WHOLE is over: IP must not collect what is incomplete
    5 % of RECENT_FRAMES , twice in a row, or 50 % once       -> one step more parity; a short burst is no reason
    at the last step no more arrive than at the first one     -> not packets are lost but whole datagrams, and parity is
                                                                 of no use: back to the first step, for GIVE_UP_FRAMES
    of QUIET_FRAMES at most 1 % (on the way to WHOLE: 0.1 %)  -> one step less
    ... and soon after that one step more again               -> twice as many frames are waited for the next time

After each step SETTLING_FRAMES pass unjudged: what is asked for meanwhile left before it. Frames are counted per
receiver, repairs included. Nothing here depends on time: a stream that stands still proves nothing.

Invariant: the mode stays WHOLE while the path is not known to be narrower than our datagrams.
"""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """How datagrams leave that are larger than a packet: parity for columns of how many segments, for rows, copies."""

    WHOLE = (0, False, 1)
    LIGHT = (8, False, 1)
    GRID = (5, True, 1)
    DOUBLE = (5, True, 2)

    def __init__(self, column: int, has_rows: bool, copies: int) -> None:
        self.column = column
        self.has_rows = has_rows
        self.copies = copies


LADDER = tuple(Mode)
WHOLE_LOST, WHOLE_FRAMES = 4, 256
RECENT_FRAMES = 128
MUCH_LOST = 0.05  # of the recent frames
MOST_LOST = 0.5
SETTLING_FRAMES = 256
QUIET_FRAMES = 4_096
QUIET_LOSS = 0.01  # at most, of the quiet frames, for a step down
WHOLE_LOSS = 0.001  # the same for the step to WHOLE, where the loss of one packet loses the whole datagram
MOST_DOUBLINGS = 6  # of QUIET_FRAMES
HELPS = 1.25  # so many times more frames arrive with full parity than with little, or it is of no use
GIVE_UP_FRAMES = 1 << 17


class Segmentation:
    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes  # of a segment; 0: datagrams always leave in one piece
        self.mode = Mode.WHOLE
        self.path_bytes = 0  # the largest datagram that goes in one packet to all members; 0: unknown
        self.frames = self.lost = 0  # large ones, ever
        self._settling = 0
        self._recent = self._recent_lost = 0
        self._lossy = 0  # of RECENT_FRAMES, so many times in a row MUCH_LOST
        self._quiet = self._quiet_lost = 0
        self._relapses = 0
        self._since_descent: int | None = None  # frames
        self._light_arrived = 1.0  # the share that arrived when LIGHT was left
        self._given_up = 0  # frames until parity is tried again

    @property
    def is_watching(self) -> bool:
        """Whether it matters what is lost: the path is known, and we may cut."""
        return self.packet_bytes > 0 and self.path_bytes > 0

    @property
    def loss(self) -> float:
        """Of the large frames that were sent last in this mode, the share that was asked for again."""
        frames, lost = self._quiet or self._recent, self._quiet_lost if self._quiet else self._recent_lost
        return min(1.0, lost / frames) if frames else 0.0

    def know_path(self, path_bytes: int) -> None:
        self.path_bytes = path_bytes
        if not self.is_watching:
            self._enter(Mode.WHOLE)

    def cuts(self, size: int) -> bool:
        """Whether a datagram of this size is cut now."""
        return self.mode is not Mode.WHOLE and size > self.path_bytes

    def sent(self, size: int, receivers: int) -> None:
        """A frame with a body of this size leaves."""
        if not self.is_watching or size <= self.path_bytes:
            return
        self.frames += receivers
        if self._settling > 0:
            self._settling -= receivers
            return
        self._recent += receivers
        self._quiet += receivers
        self._given_up = max(0, self._given_up - receivers)
        if self._since_descent is not None:
            self._since_descent += receivers
        if self.mode is Mode.WHOLE:
            if self._recent >= WHOLE_FRAMES:
                self._recent = self._recent_lost = 0
        elif self._recent >= RECENT_FRAMES:
            self._review_recent()
        if self._quiet >= self._quiet_frames:
            self._review_quiet()

    def asked(self, size: int) -> None:
        """A receiver asks for a frame with a body of this size again."""
        if not self.is_watching or size <= self.path_bytes:
            return
        self.lost += 1
        if self._settling > 0:
            return
        self._recent_lost += 1
        self._quiet_lost += 1
        if self.mode is Mode.WHOLE and self._recent_lost >= WHOLE_LOST:
            self._climb()

    @property
    def _quiet_frames(self) -> int:
        return QUIET_FRAMES << self._relapses

    def _review_recent(self) -> None:
        share = min(1.0, self._recent_lost / self._recent)
        self._recent = self._recent_lost = 0
        self._lossy = self._lossy + 1 if share >= MUCH_LOST else 0
        if self._lossy < 2 and share < MOST_LOST:
            return
        if self.mode is Mode.LIGHT:
            self._light_arrived = 1 - share
        if self.mode is not Mode.DOUBLE:
            self._climb()
        elif 1 - share < HELPS * self._light_arrived:
            self._given_up = GIVE_UP_FRAMES
            self._enter(Mode.LIGHT)

    def _climb(self) -> None:
        if self._given_up and self.mode is Mode.LIGHT:
            return
        is_relapse = self._since_descent is not None and self._since_descent < self._quiet_frames
        self._relapses = min(self._relapses + 1, MOST_DOUBLINGS) if is_relapse else self._relapses
        self._since_descent = None
        self._enter(LADDER[LADDER.index(self.mode) + 1])

    def _review_quiet(self) -> None:
        most = WHOLE_LOSS if self.mode is Mode.LIGHT else QUIET_LOSS
        is_quiet = self._quiet_lost <= most * self._quiet
        self._quiet = self._quiet_lost = 0
        if self._since_descent is not None and self._since_descent >= self._quiet_frames:
            self._since_descent, self._relapses = None, 0
        if is_quiet and self.mode is not Mode.WHOLE:
            self._since_descent = 0
            self._enter(LADDER[LADDER.index(self.mode) - 1])

    def _enter(self, mode: Mode) -> None:
        self.mode = mode
        self._recent = self._recent_lost = self._quiet = self._quiet_lost = self._lossy = 0
        self._settling = SETTLING_FRAMES

    def _check(self) -> None:
        assert self.is_watching or self.mode is Mode.WHOLE
        assert 0 <= self.loss <= 1
