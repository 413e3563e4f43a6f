"""The reference is complete and current."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from motet import errors
from motet.api.joining import Joining
from motet.errors import MotetError
from tests.docs.pages import DOCS
from tests.docs.reference import PAGE, reference

REFERENCE = DOCS / "reference"
ERRORS = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, MotetError)]


def test_the_page_of_the_command_line_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "refresh it: python -m tests.docs.reference"


def test_every_option_of_join_is_told() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    options = {field.name for field in fields(Joining) if field.init}
    assert options == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize("error", [error for error in ERRORS if error is not MotetError], ids=lambda e: e.__name__)
def test_every_error_is_told_with_whether_to_try_again(error: type[MotetError]) -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `{error.__name__}` \| .+ \| (yes|no) \| .*\|$", page, re.MULTILINE)
    assert rows == ["yes" if error.retryable else "no"]


def test_no_error_is_told_that_is_none() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) <= {error.__name__ for error in ERRORS}
