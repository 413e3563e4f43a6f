"""What runs on the public host: its files can be read, and what they name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from motet.cli.app import app

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKE = re.compile(r"\bmake\b((?: +[A-Z]+=\S+)*)((?: +[a-z-]+)+)")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(WORKFLOW)["jobs"]
    return found


def commands() -> Iterator[str]:
    for job in jobs().values():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {target for line in re.findall(r"^([a-z][a-z -]*):", makefile, re.MULTILINE) for target in line.split()}


def supported() -> set[str]:
    found = re.search(r"^SUPPORTED := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def test_each_command_is_a_target_of_the_makefile() -> None:
    named = {target for command in commands() for _, some in MAKE.findall(command) for target in some.split()}
    assert {"test", "coverage", "docs", "package", "venv-locked"} <= named
    assert named <= targets()


def test_every_supported_python_is_tested_on_both_systems() -> None:
    matrix = jobs()["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == supported()
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


@pytest.mark.parametrize("name", ["test", "coverage"])
def test_jobs_that_run_the_tests_have_java(name: str) -> None:
    java = [step["with"]["java-version"] for step in jobs()[name]["steps"] if "setup-java" in step.get("uses", "")]
    assert java == ["17"]


@pytest.mark.parametrize("name", sorted(jobs()))
def test_a_job_is_bounded_and_may_change_nothing(name: str) -> None:
    assert jobs()[name]["timeout-minutes"] <= 60
    assert "permissions" not in jobs()[name]
    assert read(WORKFLOW)["permissions"] == {"contents": "read"}


def test_what_a_step_reads_or_hands_over_exists() -> None:
    steps = [step for job in jobs().values() for step in job["steps"]]
    for path in (step["with"]["cache-dependency-path"] for step in steps if "cache" in step.get("with", {})):
        assert (ROOT / path).is_file()
    written = (ROOT / "Makefile").read_text(encoding="utf-8") + (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in (step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")):
        assert path in written


def test_hooks_are_local_and_use_the_tools_of_the_development_environment() -> None:
    tools = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for repository in read(HOOKS)["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            tool, *arguments = hook["entry"].split()
            name = tool.removeprefix(".venv/bin/")
            assert name != tool
            assert name == "python" or f'"{name}>=' in tools
            for path in (argument for argument in arguments if argument.startswith(("src", "tests"))):
                assert (ROOT / path).exists(), path


def test_hooks_check_what_lint_checks() -> None:
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    entries = [hook["entry"] for repository in read(HOOKS)["repos"] for hook in repository["hooks"]]
    for command in re.findall(r"\$\(BIN\)/(\w+(?: (?:check|format --check))?)", lint):
        assert any(entry.startswith(f".venv/bin/{command}") for entry in entries) or command == "python"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_has_what_the_host_asks_for(path: Path) -> None:
    form = read(path)
    if path.stem == "config":
        assert form == {"blank_issues_enabled": False}
        return
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    assert all(part["attributes"].get("label") for part in form["body"] if part["type"] != "markdown")


def test_commands_that_are_asked_of_people_exist() -> None:
    root: Any = typer.main.get_command(app)
    known = set(root.list_commands(root.make_context("motet", ["--help"], resilient_parsing=True)))
    files = [*FORMS, ROOT / "SECURITY.md", ROOT / ".github" / "pull_request_template.md"]
    named = {name for path in files for name in re.findall(r"`motet ([a-z]+)", path.read_text(encoding="utf-8"))}
    assert named
    assert named <= known
