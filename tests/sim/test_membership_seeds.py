"""Seeds of four scenarios that once failed, and what was wrong. They must pass for ever."""

from __future__ import annotations

import pytest

from motet.sim.runner import run_seed

MEMBERSHIP = {
    38: "a message of several fragments spanned two views, and those who came in missed its beginning",
    224: "a leaver that took no part was not counted, and two views were primary",
    304: "each ballot began to wait anew before it asked for what was missing, and none ended",
    603: "a round that timed out at one who was not to act any more left all frozen",
    701: "a leaver that was not waited for fetched what nobody had any more, and never left",
    924: "a later, lower cut did not stop what an earlier one had allowed",
    1110: "what a small window had let go counted as stable",
    1272: "a window much smaller than the cut was far made space once per ballot; and a late coordinator gave up",
    300: "a late frame to an earlier incarnation spoilt the bootstrap, which was then never tried again",
    1885: "a process that had lost its memory and restarted with what it learned since helped to found a second group",
    1839: "a part that was asked again and again waited for a dead leader for ever",
    2084: "a seed that restarted without memory helped to found a second group",
    2454: "a part that was left out of a merge was told to commit it",
}
TOTAL_ORDER = {
    36: "who came in took over the epoch, but not the position",
    98: "members of one part ended a view at different positions",
    201: "nobody told again what was stable before the view began",
}
PRESETS = {
    204: "a part that had said READY to a merge gave up waiting, and went on ordering in its old primary view",
}
INTERRUPTED = {
    60: "who did not know that it was let go asked how its view had ended, and nobody knew it any more",
    224: "the same; and a coordinator that was removed suspected those who had survived",
}
SNAPSHOT = {
    6: "markers of others came to a member before their view, were dropped, and nobody told the initiator",
}


@pytest.mark.parametrize("seed", MEMBERSHIP)
def test_a_seed_of_membership_that_once_failed(seed: int) -> None:
    assert run_seed("membership", seed).violations == ()


@pytest.mark.parametrize("seed", PRESETS)
def test_a_seed_of_presets_that_once_failed(seed: int) -> None:
    assert run_seed("presets", seed).violations == ()


@pytest.mark.parametrize("seed", INTERRUPTED)
def test_a_seed_of_interrupted_that_once_failed(seed: int) -> None:
    assert run_seed("interrupted", seed).violations == ()


@pytest.mark.parametrize("seed", TOTAL_ORDER)
def test_a_seed_of_total_order_that_once_failed(seed: int) -> None:
    assert run_seed("total-order", seed).violations == ()


@pytest.mark.parametrize("seed", SNAPSHOT)
def test_a_seed_of_snapshot_that_once_failed(seed: int) -> None:
    assert run_seed("snapshot", seed).violations == ()
