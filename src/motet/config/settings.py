"""One setting: its meaning, its allowed values, its spelling, and the errors about it.

A setting is a field of `Config` with a `Setting` in its metadata. Inside, durations are nanoseconds and sizes are
bytes, both integers; in a file, in the environment and in arguments they are text such as `250ms` and `64KiB`, and a
duration goes under its name without `_ns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Any

from motet.errors import ConfigError
from motet.protocol.core.units import parse_duration, parse_size, spell_duration, spell_size

_KEY = "motet"
HIDDEN = "(not shown)"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Secret(str):
    """A string that repr and deep copies hide. `dataclasses.asdict` makes such copies, which people print and log."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __deepcopy__(self, memo: object) -> str:
        return HIDDEN


class SettingKind(Enum):
    COUNT = "a whole number"
    SIZE = "a size such as 64KiB"
    DURATION = "a duration such as 250ms"
    FLAG = "true or false"
    TEXT = "a text"
    CHOICE = "one of a few words"
    TEXTS = "a list of texts"


@dataclass(frozen=True, slots=True)
class Setting:
    kind: SettingKind
    about: str  # one full sentence, on one line
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    is_secret: bool = False  # never shown


def duration(default_ns: int, least_ns: int, most_ns: int, about: str) -> Any:
    return _field(default_ns, Setting(SettingKind.DURATION, about, least_ns, most_ns))


def size(default_bytes: int, least_bytes: int, most_bytes: int, about: str) -> Any:
    return _field(default_bytes, Setting(SettingKind.SIZE, about, least_bytes, most_bytes))


def count(default: int, least: int, most: int, about: str) -> Any:
    return _field(default, Setting(SettingKind.COUNT, about, least, most))


def flag(default: bool, about: str) -> Any:
    return _field(default, Setting(SettingKind.FLAG, about))


def choice(choices: Sequence[str], about: str) -> Any:
    """The first one is the default."""
    return _field(choices[0], Setting(SettingKind.CHOICE, about, choices=tuple(choices)))


def text(default: str, about: str, *, is_secret: bool = False) -> Any:
    return _field(default, Setting(SettingKind.TEXT, about, is_secret=is_secret))


def texts(about: str, *, is_secret: bool = False) -> Any:
    return _field((), Setting(SettingKind.TEXTS, about, is_secret=is_secret))


def _field(default: object, setting: Setting) -> Any:
    return field(default=default, repr=not setting.is_secret, metadata={_KEY: setting})


def setting_of(of: Field[Any]) -> Setting:
    setting = of.metadata[_KEY]
    assert isinstance(setting, Setting)
    return setting


def key_of(of: Field[Any]) -> str:
    """The name under which people write the setting."""
    return of.name.removesuffix("_ns") if setting_of(of).kind is SettingKind.DURATION else of.name


def spell(setting: Setting, value: object) -> str:
    """Format a value as people write it."""
    if setting.is_secret and value:
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and setting.kind is not SettingKind.COUNT:
        return spell_duration(value) if setting.kind is SettingKind.DURATION else spell_size(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def allowed(setting: Setting) -> str:
    """The allowed values, for error messages and the reference."""
    if setting.kind in (SettingKind.COUNT, SettingKind.SIZE, SettingKind.DURATION):
        return f"{spell(setting, setting.least)} to {spell(setting, setting.most)}"
    return ", ".join(setting.choices) or str(setting.kind.value)


def check(of: Field[Any], value: object) -> None:
    """Raise ConfigError unless the value has the right type and is allowed; the message names both."""
    setting, key = setting_of(of), key_of(of)
    match setting.kind:
        case SettingKind.COUNT | SettingKind.SIZE | SettingKind.DURATION:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{of.name} = {_shown(setting, value)} is no whole number; {_advice(of)}")
            if not setting.least <= value <= setting.most:
                raise outside(key, spell(setting, value) if value >= 0 else str(value), allowed(setting))
        case SettingKind.CHOICE:
            if value not in setting.choices:
                raise outside(key, repr(value), allowed(setting))
        case SettingKind.FLAG:
            if not isinstance(value, bool):
                raise ConfigError(f"{key} = {value!r} is neither True nor False; {_advice(of)}")
        case SettingKind.TEXT:
            if not isinstance(value, str):
                raise ConfigError(f"{key} = {_shown(setting, value)} is no text")
        case SettingKind.TEXTS:
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"{key} = {_shown(setting, value)} is no tuple of texts; {_advice(of)}")


def sealed_off(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Wrap one or several secrets, so that they are not printed by accident."""
    return Secret(value) if isinstance(value, str) else tuple(Secret(item) for item in value)


def outside(key: str, value: str, what_is: str) -> ConfigError:
    return ConfigError(f"{key} = {value} is outside what is allowed: {what_is}")


def _advice(of: Field[Any]) -> str:
    return f"Config.load({key_of(of)}=...) parses what people write; the class itself takes parsed values only"


def read(of: Field[Any], value: object) -> object:
    """Parse a value as people write it, from the environment, TOML or arguments."""
    setting, key = setting_of(of), key_of(of)
    match setting.kind, value:
        case SettingKind.DURATION, str():
            return parse_duration(value, key)
        case SettingKind.SIZE, str():
            return parse_size(value, key)
        case SettingKind.COUNT, str() if value.strip().removeprefix("-").isdecimal() and len(value) < 30:
            return int(value)
        case SettingKind.FLAG, str() if value.strip().lower() in (*_TRUE, *_FALSE):
            return value.strip().lower() in _TRUE
        case SettingKind.TEXTS, str():
            return tuple(item.strip() for item in value.split(",") if item.strip())
        case SettingKind.TEXTS, list() | tuple() if all(isinstance(item, str) for item in value):
            return tuple(value)
        case (SettingKind.SIZE | SettingKind.COUNT, int()) if not isinstance(value, bool):
            return value
        case (SettingKind.TEXT | SettingKind.CHOICE, str()) | (SettingKind.FLAG, bool()):
            return value
    raise ConfigError(
        f"{key} = {_shown(setting, value)} cannot be read; allowed is {setting.kind.value}{_limits(setting)}"
    )


def _limits(setting: Setting) -> str:
    plain = allowed(setting)
    return "" if plain == setting.kind.value else f" ({plain})"


def _shown(setting: Setting, value: object) -> str:
    return HIDDEN if setting.is_secret else repr(value)[:60]


def nearest(unknown: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name, as the end of a sentence; without a similar name, all known ones."""
    names = sorted(known)
    close = get_close_matches(unknown, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
