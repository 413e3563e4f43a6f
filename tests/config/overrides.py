"""Writes src/motet/config/overrides.py from the fields of `Config`: python -m tests.config.overrides"""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from motet.config import Config
from motet.config.presets import PRESETS
from motet.config.settings import SettingKind, key_of, setting_of

MODULE = Path(__file__).parents[2] / "src" / "motet" / "config" / "overrides.py"
HEAD = '''"""The settings as keyword arguments, for type checkers and editors. By `python -m tests.config.overrides`."""

from __future__ import annotations

from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """What `Config.local`, `lan` and `wan` take, as people write it: `heartbeat="250ms"`, `frame_bytes="64KiB"`."""

'''
TAIL = '''

class PresetAndSettings(Settings, total=False):
    """What `Config.load` takes: the settings, and the preset that they begin with."""

    preset: Literal[{presets}]
'''
TYPES = {
    SettingKind.COUNT: "int",
    SettingKind.SIZE: "int | str",
    SettingKind.DURATION: "str",
    SettingKind.FLAG: "bool",
    SettingKind.TEXT: "str",
    SettingKind.TEXTS: "str | list[str] | tuple[str, ...]",
}


def overrides() -> str:
    lines = (f"    {key_of(field)}: {_type_of(field)}\n" for field in fields(Config))
    return HEAD + "".join(lines) + TAIL.format(presets=_quoted(tuple(PRESETS)))


def _type_of(field: Field[Any]) -> str:
    setting = setting_of(field)
    return f"Literal[{_quoted(setting.choices)}]" if setting.kind is SettingKind.CHOICE else TYPES[setting.kind]


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f'"{word}"' for word in words)


if __name__ == "__main__":
    MODULE.write_text(overrides(), encoding="utf-8")
