"""Every counter says what it means, in the one place from which metrics, dashboard and documentation take it."""

from __future__ import annotations

import pytest

from motet.protocol.core.counters import Count, Counters


@pytest.mark.parametrize("count", Count)
def test_every_counter_says_what_it_means(count: Count) -> None:
    assert count.meaning, f"{count} has no meaning: write `{count.name} = name, nature, meaning`"
    assert count.meaning[0].isupper(), "operators read it without context: it is a full sentence"
    assert count.meaning.endswith(".")


def test_a_counter_is_its_name() -> None:
    counters = Counters({Count.FRAME_SENT: 3})
    assert counters["frame_sent"] == 3  # type: ignore[index]  # as a reader of /stats has it
    assert Count("frame_sent") is Count.FRAME_SENT
