"""Final numbers that several members know, as one."""

from __future__ import annotations

from motet.protocol.wire.agreed import combined_agreed
from motet.protocol.wire.frames import AgreedNumbers


def test_reports_are_joined_per_sender() -> None:
    one: AgreedNumbers = ((7, 3, ((5, 0), (6, 1))), (9, 1, ((2, 0),)))
    other: AgreedNumbers = ((7, 4, ((6, 1), (8, 2))),)
    assert combined_agreed([one, other, ()]) == ((7, 3, ((5, 0), (6, 1), (8, 2))), (9, 1, ((2, 0),)))


def test_the_order_of_the_reports_does_not_matter() -> None:
    reports: list[AgreedNumbers] = [((7, 2, ((4, 0),)),), ((7, 1, ((3, 0), (4, 0))),), ((6, 1, ((1, 1),)),)]
    assert combined_agreed(reports) == combined_agreed(reversed(reports))


def test_nothing_known_is_nothing() -> None:
    assert combined_agreed([]) == combined_agreed([(), ()]) == ()
    assert combined_agreed([((7, 1, ()),)]) == ()


def test_what_lies_between_two_runs_is_known_from_the_streams() -> None:
    assert combined_agreed([((7, 1, ((3, 0),)),), ((7, 9, ((4, 0),)),)]) == ((7, 1, ((3, 0),)), (7, 9, ((4, 0),)))
