"""`motet key`: what it prints is a key that a member takes."""

import json

from typer.testing import CliRunner

from motet.cli.app import app
from motet.config import Config
from motet.protocol.wire.seal import parse_key


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["key", *arguments])
    assert result.exit_code == 0
    return result.output.strip()


def test_a_member_takes_it() -> None:
    assert Config.lan(keys=output()).keyring() is not None


def test_every_one_is_new() -> None:
    assert len({output() for _ in range(5)}) == 5


def test_it_can_have_an_id() -> None:
    assert parse_key(output("--id", "7"))[0] == 7
    assert CliRunner().invoke(app, ["key", "--id", "256"]).exit_code == 2


def test_as_json() -> None:
    made = json.loads(output("--id", "7", "--json"))
    assert (made["id"], parse_key(made["key"])[0]) == (7, 7)
