"""The lock files cover what pyproject.toml asks for: each dependency, on each supported Python, by version and hash."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK, DEV_LOCK = ROOT / "deploy" / "requirements.lock", ROOT / "deploy" / "requirements-dev.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PLATFORMS = ("linux", "darwin")


@dataclass(frozen=True)
class Pin:
    requirement: Requirement
    hashes: tuple[str, ...]


def pins(lock: Path) -> list[Pin]:
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        Pin(Requirement(re.sub(r"\s+--hash=\S+", "", line).strip()), tuple(re.findall(r"--hash=(\S+)", line)))
        for line in lines
    ]


def pythons() -> list[str]:
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in PROJECT["classifiers"])
    return [match[1] for match in found if match]


def environments() -> Iterator[dict[str, str]]:
    for python in pythons():
        for platform in PLATFORMS:
            yield {
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": platform,
                "platform_system": platform.title(),
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
            }


def asked(*extras: str) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in optional[extra])]
    return [one for one in map(Requirement, texts) if one.name != PROJECT["name"]]


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize(
    ("lock", "extras"), [(LOCK, ()), (DEV_LOCK, ("dev", "spark"))], ids=["container", "development"]
)
def test_every_dependency_has_one_allowed_version_on_every_python(lock: Path, extras: tuple[str, ...]) -> None:
    locked = pins(lock)
    for environment in environments():
        for wanted in (one for one in asked(*extras) if applies(one, environment)):
            found = [
                pin.requirement
                for pin in locked
                if canonicalize_name(pin.requirement.name) == canonicalize_name(wanted.name)
                and applies(pin.requirement, environment)
            ]
            assert len(found) == 1, f"{wanted} on {environment}: {[str(one) for one in found]}; run `make lock`"
            (version,) = [one.version for one in found[0].specifier]
            assert wanted.specifier.contains(version), f"{found[0]} is not {wanted}; run `make lock`"


@pytest.mark.parametrize("lock", [LOCK, DEV_LOCK], ids=["container", "development"])
def test_every_pin_has_one_version_and_a_hash(lock: Path) -> None:
    for pin in pins(lock):
        assert [one.operator for one in pin.requirement.specifier] == ["=="], pin
        assert pin.hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in pin.hashes), pin


@pytest.mark.parametrize("lock", [LOCK, DEV_LOCK], ids=["container", "development"])
def test_a_lock_names_no_place_to_download_from(lock: Path) -> None:
    """Where packages come from is for whoever installs them to say."""
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text


def test_the_container_installs_by_hash_and_nothing_else() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]*)", text)
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]
    assert "--no-index" in installs[1]
