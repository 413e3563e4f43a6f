"""The demo's verdict must be able to say no."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from motet.harness.demo.evaluation import (
    BROKEN,
    NOT_SHOWN,
    PROMISES,
    DemoVerdict,
    SenderRecord,
    nothing_lost,
    numbers_by_sender,
    once_and_in_order,
    read_journal,
    same_log,
)
from tests.log.journal.factory import begun


def write(directory: Path, numbers: Sequence[int]) -> Path:
    """A journal of the messages of one sender, in this order."""
    journal, scribe = begun(directory)
    for n in numbers:
        journal.append([scribe.packed(json.dumps({"from": "ada", "incarnation": 1, "n": n}).encode())])
    journal.close()
    return directory


def ada(
    sent: int, settled_to: int, failed: tuple[tuple[int, int], ...] = (), *, was_killed: bool = False
) -> SenderRecord:
    return SenderRecord("ada", 1, sent, settled_to, failed, was_killed)


def test_journals_that_are_the_same_but_for_the_time_of_delivery(tmp_path: Path) -> None:
    is_same, figure, log = same_log([write(tmp_path / name, (1, 2, 3)) for name in ("a", "b")])
    assert (is_same, log.num_rows) == (True, 3)
    assert figure == "3 positions, the same message at each in all 2 journals"


def test_a_journal_with_two_messages_exchanged_is_named(tmp_path: Path) -> None:
    is_same, figure, _ = same_log([write(tmp_path / "a", (1, 2, 3)), write(tmp_path / "b", (1, 3, 2))])
    assert (is_same, figure) == (False, "the journals of b differ from that of a")


def test_a_journal_that_ends_early_is_named(tmp_path: Path) -> None:
    is_same, figure, _ = same_log([write(tmp_path / "a", (1, 2, 3)), write(tmp_path / "b", (1, 2))])
    assert (is_same, figure) == (False, "the journals of b differ from that of a")


def test_numbers_are_read_from_the_messages_themselves(tmp_path: Path) -> None:
    numbers = numbers_by_sender(read_journal(write(tmp_path / "a", (1, 2, 4))))
    assert numbers == {("ada", 1): [1, 2, 4]}


def test_a_message_that_its_sender_was_told_is_safe_may_not_be_missing() -> None:
    numbers = {("ada", 1): [1, 2, 4]}
    assert nothing_lost([ada(4, 4)], numbers) == (False, "1 are not in the log, and were not reported as failed: ada 3")


def test_what_failed_may_be_missing_because_its_sender_was_told() -> None:
    holds, figure = nothing_lost([ada(4, 4, ((3, 3),))], {("ada", 1): [1, 2, 4]})
    assert holds
    assert figure == "3 of 3 messages; 1 others were reported to their senders as failed"


def test_what_a_killed_process_was_not_told_of_may_be_missing_and_nothing_else() -> None:
    killed = ada(5, 2, was_killed=True)
    assert nothing_lost([killed], {("ada", 1): [1, 2, 3]})[0]
    assert not nothing_lost([killed], {("ada", 1): [1, 3]})[0]


def test_twice_and_out_of_order_are_told_apart_from_a_gap() -> None:
    assert once_and_in_order({("ada", 1): [1, 2, 4]})[0]
    assert once_and_in_order({("ada", 1): [1, 2, 2]}) == (False, "twice or out of order: ada 2 after 2")
    assert once_and_in_order({("ada", 1): [2, 1]}) == (False, "twice or out of order: ada 1 after 2")


def test_a_promise_that_was_never_evaluated_is_not_held() -> None:
    def fill(keep: Callable[[str], bool]) -> DemoVerdict:
        verdict = DemoVerdict()
        for name in filter(keep, PROMISES):
            verdict.add(name, True, "seen")
        return verdict

    assert fill(lambda name: True).is_good
    incomplete = fill(lambda name: name != PROMISES[3])
    assert not incomplete.is_good
    assert [promise.name for promise in incomplete.promises if promise.state == BROKEN] == [PROMISES[3]]
    explained = fill(lambda name: name != PROMISES[3])
    explained.not_shown(PROMISES[3], "no Java")
    assert explained.is_good
    assert [promise.state for promise in explained.promises].count(NOT_SHOWN) == 1
