"""The guide says what is true: its counters, metrics, paths, exit codes and pictures exist."""

from __future__ import annotations

import re

from motet.admin.metrics import exposition, registry_of
from motet.admin.operations import OPERATIONS
from motet.cli.probe import EXIT_CODES
from tests.admin.fakes import stats_of
from tests.admin.operations_guide import GUIDE, with_tables

TEXT = GUIDE.read_text(encoding="utf-8")


def test_the_tables_of_counters_are_up_to_date() -> None:
    assert with_tables(TEXT) == TEXT, "run: python -m tests.admin.operations_guide"


def test_every_metric_that_it_names_exists_and_every_metric_is_named() -> None:
    made = exposition(registry_of(stats_of, lambda stats: True)).decode()
    exist = set(re.findall(r"^(motet_\w+)", made, re.MULTILINE))
    named = set(re.findall(r"\b(motet_[a-z_]+)\b", TEXT))
    assert named <= exist
    tabled = {name for name in exist if f"`{name.removeprefix('motet_').removesuffix('_total')}`" in TEXT}
    assert exist - tabled <= named


def test_the_pictures_exist() -> None:
    found = re.findall(r"\((images/[\w-]+\.png)\)", TEXT)
    assert len(found) == 5
    assert all((GUIDE.parent / name).is_file() for name in found)


def test_operations_and_exit_codes_are_told() -> None:
    assert all(f"`{name}`" in TEXT for name in OPERATIONS)
    assert all(f"| {code} |" in TEXT for code in (0, 1, 2, *EXIT_CODES.values()))
