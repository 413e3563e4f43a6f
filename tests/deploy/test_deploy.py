"""What `deploy/` holds is sound: it parses, its commands and settings exist, and its numbers fit together."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from motet.cli.app import app
from motet.config import Config
from motet.protocol.wire.seal import KEY_BYTES

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "motet.service"
CONTAINERFILE = DEPLOY / "Containerfile"
COMPOSE = DEPLOY / "compose.yaml"
MANIFESTS = DEPLOY / "kubernetes" / "motet.yaml"
SECRETS = {"MOTET_KEYS": "01" * KEY_BYTES, "MOTET_TOKEN": "a token of some length".replace(" ", "-")}
OF_THE_COMMAND = {"MOTET_GROUP", "MOTET_NAME", "MOTET_BIND", "MOTET_JOURNAL"}


def unit_lines(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def documents() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8"))}


def stateful_set() -> dict[str, Any]:
    return dict(documents()["StatefulSet"]["spec"])


def container() -> dict[str, Any]:
    (found,) = stateful_set()["template"]["spec"]["containers"]
    return dict(found)


def member() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["member"])


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for key in ("ExecStart", "ExecStartPre"):
        for line in unit_lines(key):
            yield f"{UNIT.name} {key}", shlex.split(line)[1:]
    (command,) = re.findall(r"^CMD (\[.*\])$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    yield CONTAINERFILE.name, json.loads(command)
    yield COMPOSE.name, member()["command"]
    yield MANIFESTS.name, container()["args"]


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    yield UNIT.name, dict(line.split("=", 1) for line in unit_lines("Environment"))
    yield COMPOSE.name, {name: str(value) for name, value in member()["environment"].items()}
    yield MANIFESTS.name, {entry["name"]: str(entry.get("value", "")) for entry in container()["env"]}


@pytest.mark.parametrize(("place", "arguments"), [pytest.param(*line, id=line[0]) for line in command_lines()])
def test_every_command_is_one_of_ours(place: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_GROUP", "orders")
    root: Any = typer.main.get_command(app)
    with root.make_context("motet", list(arguments), resilient_parsing=True) as context:
        name, command, rest = root.resolve_command(context, list(arguments))
        command.make_context(name, list(rest))  # raises for an option that does not exist, or a value that cannot be


@pytest.mark.parametrize(("place", "environ"), [pytest.param(*given, id=given[0]) for given in environments()])
def test_every_variable_is_a_setting_with_an_allowed_value(place: str, environ: Mapping[str, str]) -> None:
    ours = {name: value for name, value in environ.items() if name.startswith("MOTET_")}
    Config.from_env({**ours, **{name: value for name, value in SECRETS.items() if name in ours}})


def test_the_variables_of_the_command_are_options_of_it() -> None:
    root: Any = typer.main.get_command(app)
    context = root.make_context("motet", ["--help"], resilient_parsing=True)
    node = root.get_command(context, "node")
    assert {parameter.envvar for parameter in node.params if parameter.envvar} == OF_THE_COMMAND


def test_the_settings_of_the_service_can_be_loaded() -> None:
    config = Config.load(UNIT.with_name("motet.toml"), SECRETS)
    assert len(config.seeds) == 3


def test_the_unit_is_one_for_systemd(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("there is no systemd-analyze here")
    text = UNIT.read_text(encoding="utf-8").replace("/opt/motet/bin/motet", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    checked = subprocess.run(
        [verify, "verify", str(copy)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert copy.name not in checked.stderr, checked.stderr
    assert checked.returncode == 0, checked.stderr


def test_the_quorum_is_a_majority_of_the_replicas() -> None:
    settings = dict(environments())
    for place, replicas in (
        (MANIFESTS.name, stateful_set()["replicas"]),
        (COMPOSE.name, member()["deploy"]["replicas"]),
    ):
        assert int(settings[place]["MOTET_STATIC_QUORUM"]) == replicas // 2 + 1


def test_service_and_pods_name_the_same_things() -> None:
    service, labels = documents()["Service"]["spec"], stateful_set()["template"]["metadata"]["labels"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True  # nobody is ready before the members have found each other
    assert service["selector"] == stateful_set()["selector"]["matchLabels"] == labels
    assert {port["name"]: port["port"] for port in service["ports"]} == {
        port["name"]: port["containerPort"] for port in container()["ports"]
    }
    assert container()["readinessProbe"]["httpGet"] == {"path": "/health", "port": "admin"}
    assert "livenessProbe" not in container()
    environ = dict(environments())[MANIFESTS.name]
    name, port = environ["MOTET_DISCOVERY_DNS"].split(":")
    assert (name, int(port)) == (documents()["Service"]["metadata"]["name"], service["ports"][0]["port"])


def test_members_of_a_stateful_set_do_not_wait_for_one_another() -> None:
    """One alone is never ready with a quorum of two; started in turn, the second would never come."""
    assert stateful_set()["podManagementPolicy"] == "Parallel"


def test_secrets_come_from_a_secret() -> None:
    sources = {entry["name"]: entry.get("valueFrom", {}) for entry in container()["env"]}
    assert all("secretKeyRef" in sources[name] for name in SECRETS)
    assert not any(name in UNIT.read_text(encoding="utf-8").replace(f"{name}=...", "") for name in SECRETS)
