"""The scenario `small-world`: a sample of its cases passes, its cases are what they say, and a planted bug is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from motet.errors import ConfigError
from motet.protocol.membership.participant import Participant
from motet.protocol.multicast.machine import Multicast
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.sim.runner import run_seed
from motet.sim.scenarios.small_cases import CHANGES, NAMES, InjectedFault, faults_of
from motet.sim.scenarios.small_world import CUT_NS, case_count, case_of, run_small_world, steps_of

SAMPLE = 150
SHARES = 15  # tests, so that the workers of a parallel run share the sample evenly
CRASH_OF_D = next(change for change in CHANGES if change.name == "crash of d")


def sample() -> list[int]:
    """Spread evenly over all cases."""
    count = case_count()
    return [index * count // SAMPLE for index in range(SAMPLE)]


def named(start: str, end: str) -> list[int]:
    """The cases of one change and one fault, or several, in the order of the steps."""
    cases = map(case_of, range(case_count()))
    return [case.number for case in cases if case.change.name == start and str(case.fault).endswith(end)]


@pytest.mark.parametrize("share", range(SHARES))
def test_cases_pass(share: int) -> None:
    outcomes = [run_seed("small-world", number) for number in sample()[share::SHARES]]
    failed = [
        f"{case_of(outcome.seed)}: {outcome.violations[0]}\n"
        f"  replay: motet sim --seed {outcome.seed} --scenario small-world --transcript"
        for outcome in outcomes
        if not outcome.is_ok
    ]
    assert not failed, "\n" + "\n".join(failed)
    assert all(outcome.stats["delivered"] > 0 for outcome in outcomes)
    assert all(outcome.stats["views"] > 1 for outcome in outcomes)  # where nothing changes nothing is proved


# The cases


def test_there_are_thousands_and_each_has_its_own_name() -> None:
    count = case_count()
    assert count > 2_000
    assert len({str(case_of(number)) for number in range(count)}) == count


def test_their_number_does_not_depend_on_the_process() -> None:
    """Sets and dicts of strings have another order there."""
    script = (
        "from motet.sim.scenarios.small_world import case_count, case_of\n"
        "print(case_count(), case_of(case_count() - 1))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout == f"{case_count()} {case_of(case_count() - 1)}\n"


def test_the_sample_has_every_change_and_every_kind_of_fault() -> None:
    cases = [case_of(number) for number in sample()]
    assert {case.change for case in cases} == set(CHANGES)
    assert {(bool(case.fault.crash), len(case.fault.links)) for case in cases} == {(True, 0), (False, 1), (False, 2)}


def test_names_can_be_read() -> None:
    names = {str(case_of(number)) for number in range(case_count())}
    for name in (
        "merge of 2 and 2, step 17, b crashes",
        "leave of the coordinator a, step 1, c does not reach d",
        "crash of d, step 8, a and b are cut off from each other",
    ):
        assert name in names


def test_each_step_meets_all_faults_of_those_who_live() -> None:
    assert len(faults_of(CHANGES[0])) == 4 + 12 + 6
    assert len(faults_of(CRASH_OF_D)) == 3 + 6 + 3
    assert InjectedFault(crash="d") not in faults_of(CRASH_OF_D)
    assert all(steps_of(change) >= len(NAMES) for change in CHANGES)


@pytest.mark.parametrize("beyond", [0, 1, 10**9])
def test_a_case_beyond_the_last_is_refused(beyond: int) -> None:
    with pytest.raises(ConfigError, match=f"there are {case_count()} cases, counted from 0"):
        run_seed("small-world", case_count() + beyond)


# A run


def test_the_same_case_gives_the_same_run_watched_or_not() -> None:
    for number in sample()[::50]:
        watched, unwatched = run_small_world(number, with_transcript=True), run_small_world(number)
        assert run_small_world(number, with_transcript=True) == watched
        assert (unwatched.fingerprint, unwatched.stats) == (watched.fingerprint, watched.stats)
        assert unwatched.transcript == ()


def test_a_transcript_tells_the_case_and_when_it_strikes() -> None:
    for number in sample()[::30]:
        case, transcript = case_of(number), run_small_world(number, with_transcript=True).transcript
        assert transcript[0] == f"case {number}: {case}"
        (begin,) = [index for index, line in enumerate(transcript) if line.endswith(f"{case.change.name} begins")]
        (strike,) = [index for index, line in enumerate(transcript) if line.endswith(f"fault: {case.fault}")]
        assert begin < strike


def test_whoever_crashes_at_a_step_sends_nothing_more_not_even_that_frame() -> None:
    """The coordinator dies in the middle of a leave; some of these frames are its own, one of several at once."""
    for number in named("leave of d", "a crashes")[::2]:
        transcript = run_small_world(number, with_transcript=True).transcript
        strike = next(index for index, line in enumerate(transcript) if line.endswith("fault: a crashes"))
        assert not [line for line in transcript[strike:] if "a#0001 ->" in line or "a#0001 delivers" in line]


def test_a_cut_lasts_three_seconds_and_takes_the_frame_of_its_step() -> None:
    for number in named("leave of d", "a does not reach c")[::5]:
        transcript = run_small_world(number, with_transcript=True).transcript
        strike = next(index for index, line in enumerate(transcript) if "fault: " in line)
        end = next(index for index, line in enumerate(transcript) if line.endswith("the cut ends"))
        assert milliseconds(transcript[end]) - milliseconds(transcript[strike]) == pytest.approx(CUT_NS / 1e6)
        lost = [line.endswith("[cut]") for line in transcript[strike:end] if "a#0001 -> c#0003" in line]
        assert lost
        assert all(lost)


def milliseconds(line: str) -> float:
    return float(line.split(" ms ")[0])


# Planted bugs


def nobody_goes_on_alone(patch: pytest.MonkeyPatch) -> None:
    """Whoever does not stand at the cut leaves for a view of its own: a second guard, behind which bugs could hide."""
    patch.setattr(Participant, "_is_where_we_stand", lambda self, following, cut: True)


def the_rest_of_a_view_is_not_fetched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multicast, "is_complete", lambda self, cut: True)


def a_frozen_receiver_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    nobody_goes_on_alone(patch)
    original = MulticastReceiver.freeze

    def freeze(self: MulticastReceiver) -> object:
        entry = original(self)
        self._limit = None
        return entry

    patch.setattr(MulticastReceiver, "freeze", freeze)


PLANTS = [
    (the_rest_of_a_view_is_not_fetched, "join of d", "d does not reach c", "virtual synchrony"),
    (a_frozen_receiver_goes_on_delivering, "join of d", "b does not reach c", "virtual synchrony"),
]


@pytest.mark.parametrize(("plant", "change", "fault", "rule"), PLANTS, ids=[plant[0].__name__ for plant in PLANTS])
def test_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], change: str, fault: str, rule: str) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    numbers = named(change, fault)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        caught = next((number for number in numbers if rule in rules_broken(number)), None)
    assert caught is not None, f"{plant.__name__} went through {len(numbers)} cases unseen"
    assert not rules_broken(caught)


def rules_broken(number: int) -> list[str]:
    return [violation.rule for violation in run_seed("small-world", number).violations]
