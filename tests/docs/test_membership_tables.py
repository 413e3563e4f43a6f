"""The state tables in docs/design/membership.md are those of the code."""

from __future__ import annotations

import pytest

from motet.protocol.membership.participant import Participant, ParticipantInput, ParticipantState
from motet.protocol.membership.transitions import Table, Transition, repeated
from tests.docs.membership_tables import PAGE, written


def test_the_tables_are_as_the_code_has_them() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page), "run `python -m tests.docs.membership_tables`"


def test_a_changed_transition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Table = {(ParticipantState.READY, ParticipantInput.CUT): Transition(repeated)}
    table: Table = dict(Participant.TABLE) | dict(changed)
    monkeypatch.setattr(Participant, "TABLE", table)
    page = PAGE.read_text("utf-8")
    assert page != written(page)
