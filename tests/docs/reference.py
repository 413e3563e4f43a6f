"""Writes docs/reference/cli.md from the commands themselves: python -m tests.docs.reference"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from motet.cli.app import app
from tests.docs.pages import DOCS

PAGE = DOCS / "reference" / "cli.md"
HEAD = """# The command line

Every command of `motet`, as `--help` tells it. This page is made from the commands by `python -m tests.docs.reference`.

A command that fails with an error of Motet's own says so in one sentence and ends with exit code 2, unless its text
below says otherwise. When nobody reads its output any more, as in `motet run | head -1`, a command ends quietly with
exit code 141. `motet --version` prints the version.

`motet --install-completion` sets up completion for the shell in which it is called (bash, zsh, fish, PowerShell); it
takes effect in the next one. `motet --show-completion` prints the script instead.
"""
HIDDEN = ("help", "install_completion", "show_completion")


def reference() -> str:
    root: Any = typer.main.get_command(app)
    context = root.make_context("motet", ["--help"], resilient_parsing=True)
    commands = [(name, root.get_command(context, name)) for name in root.list_commands(context)]
    table = "\n".join(f"| [`motet {name}`](#motet-{name}) | {_summary(command)} |" for name, command in commands)
    parts = [HEAD, f"| command | |\n|---|---|\n{table}\n"]
    for name, command in commands:
        parts += _command(f"motet {name}", command, 2)
    return "\n".join(parts)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    paragraphs, examples = _help(command)
    yield f"{'#' * level} {name}\n"
    yield from (f"{paragraph}\n" for paragraph in paragraphs)
    if examples:
        yield "```\n" + "\n".join(examples) + "\n```\n"
    subcommands: dict[str, Any] = getattr(command, "commands", {})
    rows = [_row(parameter) for parameter in command.params if parameter.name not in HIDDEN]
    if rows and not subcommands:
        yield "| option | what it is | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    for child, subcommand in subcommands.items():
        yield from _command(f"{name} {child}", subcommand, level + 1)


def _help(command: Any) -> tuple[list[str], list[str]]:
    """Sentences, and the lines of the examples."""
    text = re.sub(r"[\b\f]", "", command.help or "")
    text, _, shown = text.partition("Examples:")
    examples = [line for line in shown.splitlines() if line.startswith("  ")]
    after = "\n".join(line for line in shown.splitlines() if not line.startswith("  "))
    paragraphs = [" ".join(part.split()) for part in (*text.split("\n\n"), *after.split("\n\n"))]
    return [_plain(paragraph) for paragraph in paragraphs if paragraph], [line[2:].rstrip() for line in examples]


def _summary(command: Any) -> str:
    return _help(command)[0][0]


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
        shown = ", ".join(f"`{option}{value}`" for option in parameter.opts)
    return f"| {shown} | {_plain(parameter.help or '')}{_bounds(parameter)} | {_default(parameter)} |"


def _bounds(parameter: Any) -> str:
    """Some versions of typer keep them at the parameter, others at its type."""
    least, most = (_bound(parameter, name) for name in ("min", "max"))
    if least is None:
        return ""
    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return "" if bounds in parameter.help else f" {bounds}."


def _bound(parameter: Any, name: str) -> Any:
    return getattr(parameter, name, getattr(getattr(parameter, "type", None), name, None))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    value = parameter.default() if callable(parameter.default) else parameter.default
    return "" if value in (None, "", (), []) or isinstance(value, bool) else f"`{value}`"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
