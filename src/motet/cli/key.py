"""`motet key`: a new key for a group, from the system's entropy."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from motet.protocol.wire.seal import KEY_BYTES, format_key, parse_key

EXAMPLES = """
Examples:

  export MOTET_KEYS=$(motet key)           the same value at every member

  motet key --id 2                         a key with an id of its own, for a rotation
"""


def key(
    key_id: Annotated[int | None, typer.Option("--id", help="Give it this id, 0 to 255.", min=0, max=255)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Print a new key. Members that share it accept each other's datagrams and reject all others."""
    text = format_key(secrets.token_bytes(KEY_BYTES))
    written = text if key_id is None else f"{key_id}:{text}"
    typer.echo(json.dumps({"key": written, "id": parse_key(written)[0]}) if as_json else written)


key.__doc__ = f"{key.__doc__}\n\n\b{EXAMPLES}"
