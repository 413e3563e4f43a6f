"""The operations of the admin interface: names, arguments, and the faults that the dashboard offers.

They are checked before they reach the member, so that the driver sees only known names with valid arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MOST_ARGUMENT = 1000  # characters


@dataclass(frozen=True, slots=True)
class AdminOperation:
    name: str
    argument: str | None  # each takes one text, or none
    meaning: str
    example: str


OPERATIONS = {
    operation.name: operation
    for operation in (
        AdminOperation(
            "sync", "member", "resynchronise the unicast connection with a member, and wait for it", "sync b"
        ),
        AdminOperation("snapshot", None, "take one consistent snapshot of the whole group", "snapshot"),
        AdminOperation(
            "leave", None, "leave the group in order; what the process does then is its own decision", "leave"
        ),
        AdminOperation("fault", "rule", "inject a fault, or remove all with `clear`", "fault drop=0.2@b"),
    )
}


@dataclass(frozen=True, slots=True)
class FaultPreset:
    label: str
    rule: str  # PEER is replaced by the member that is selected on the page
    needs_peer: bool = False


FAULT_PRESETS = (
    FaultPreset("drop 20 %", "drop=0.2"),
    FaultPreset("delay 50 ms", "delay=50ms"),
    FaultPreset("duplicate 10 %", "duplicate=0.1"),
    FaultPreset("block a peer", "cut@PEER", needs_peer=True),
    FaultPreset("clear all faults", "clear"),
)


def fault_presets() -> list[dict[str, object]]:
    return [asdict(preset) for preset in FAULT_PRESETS]


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError that says what is allowed."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ValueError(f"there is no operation {name[:50]!r}; there are: {', '.join(OPERATIONS)}")
    wanted = [operation.argument] if operation.argument else []
    if sorted(arguments) != wanted:
        takes = f"takes {operation.argument!r}" if operation.argument else "takes no arguments"
        raise ValueError(f"operation {name} {takes}, not {sorted(map(str, arguments))[:5]}")
    for key, value in arguments.items():
        if not isinstance(value, str) or not 0 < len(value) <= MOST_ARGUMENT:
            raise ValueError(f"{key} must be a text of 1 to {MOST_ARGUMENT} characters")
    return dict(arguments)
