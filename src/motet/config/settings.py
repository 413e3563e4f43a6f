"""One setting: what it means, what is allowed, how it is written, and what is said when it is wrong.

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
    """A text that no representation and no deep copy shows. `dataclasses.asdict` makes such copies, to be printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __deepcopy__(self, memo: object) -> str:
        return HIDDEN


class Kind(Enum):
    COUNT = "a whole number"
    SIZE = "a size such as 64KiB"
    DURATION = "a duration such as 250ms"
    FLAG = "true or false"
    TEXT = "a text"
    CHOICE = "one of a few words"
    TEXTS = "a list of texts"


@dataclass(frozen=True, slots=True)
class Setting:
    kind: Kind
    about: str  # one line
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    is_secret: bool = False  # never shown


def duration(default_ns: int, least_ns: int, most_ns: int, about: str) -> Any:
    return _field(default_ns, Setting(Kind.DURATION, about, least_ns, most_ns))


def size(default_bytes: int, least_bytes: int, most_bytes: int, about: str) -> Any:
    return _field(default_bytes, Setting(Kind.SIZE, about, least_bytes, most_bytes))


def count(default: int, least: int, most: int, about: str) -> Any:
    return _field(default, Setting(Kind.COUNT, about, least, most))


def flag(default: bool, about: str) -> Any:
    return _field(default, Setting(Kind.FLAG, about))


def choice(choices: Sequence[str], about: str) -> Any:
    """The first one is the default."""
    return _field(choices[0], Setting(Kind.CHOICE, about, choices=tuple(choices)))


def text(default: str, about: str, *, is_secret: bool = False) -> Any:
    return _field(default, Setting(Kind.TEXT, about, is_secret=is_secret))


def texts(about: str, *, is_secret: bool = False) -> Any:
    return _field((), Setting(Kind.TEXTS, about, is_secret=is_secret))


def _field(default: object, setting: Setting) -> Any:
    return field(default=default, repr=not setting.is_secret, metadata={_KEY: setting})


def setting_of(of: Field[Any]) -> Setting:
    setting = of.metadata[_KEY]
    assert isinstance(setting, Setting)
    return setting


def key_of(of: Field[Any]) -> str:
    """As it is called where people write it."""
    return of.name.removesuffix("_ns") if setting_of(of).kind is Kind.DURATION else of.name


def spell(setting: Setting, value: object) -> str:
    """A value as people write it."""
    if setting.is_secret and value:
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and setting.kind is not Kind.COUNT:
        return spell_duration(value) if setting.kind is Kind.DURATION else spell_size(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def allowed(setting: Setting) -> str:
    """What may be written, in words."""
    if setting.kind in (Kind.COUNT, Kind.SIZE, Kind.DURATION):
        return f"{spell(setting, setting.least)} to {spell(setting, setting.most)}"
    return ", ".join(setting.choices) or str(setting.kind.value)


def check(of: Field[Any], value: object) -> None:
    """Whether a value of the right kind is also allowed; what is wrong is named, with what would be right."""
    setting, key = setting_of(of), key_of(of)
    match setting.kind:
        case Kind.COUNT | Kind.SIZE | Kind.DURATION:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{of.name} = {_shown(setting, value)} is no whole number; {_advice(of)}")
            if not setting.least <= value <= setting.most:
                raise outside(key, spell(setting, value) if value >= 0 else str(value), allowed(setting))
        case Kind.CHOICE:
            if value not in setting.choices:
                raise outside(key, repr(value), allowed(setting))
        case Kind.FLAG:
            if not isinstance(value, bool):
                raise ConfigError(f"{key} = {value!r} is neither True nor False; {_advice(of)}")
        case Kind.TEXT:
            if not isinstance(value, str):
                raise ConfigError(f"{key} = {_shown(setting, value)} is no text")
        case Kind.TEXTS:
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                raise ConfigError(f"{key} = {_shown(setting, value)} is no tuple of texts; {_advice(of)}")


def sealed_off(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """The same secret, or the same secrets, such that they are not shown by accident."""
    return Secret(value) if isinstance(value, str) else tuple(Secret(item) for item in value)


def outside(key: str, value: str, what_is: str) -> ConfigError:
    return ConfigError(f"{key} = {value} is outside what is allowed: {what_is}")


def _advice(of: Field[Any]) -> str:
    return f"Config.load({key_of(of)}=...) reads what people write, the class itself takes only what it is made of"


def read(of: Field[Any], value: object) -> object:
    """A value as people write it (text of the environment, or what TOML makes of a file), as the field holds it."""
    setting, key = setting_of(of), key_of(of)
    match setting.kind, value:
        case Kind.DURATION, str():
            return parse_duration(value, key)
        case Kind.SIZE, str():
            return parse_size(value, key)
        case Kind.COUNT, str() if value.strip().removeprefix("-").isdecimal() and len(value) < 30:
            return int(value)
        case Kind.FLAG, str() if value.strip().lower() in (*_TRUE, *_FALSE):
            return value.strip().lower() in _TRUE
        case Kind.TEXTS, str():
            return tuple(item.strip() for item in value.split(",") if item.strip())
        case Kind.TEXTS, list() | tuple() if all(isinstance(item, str) for item in value):
            return tuple(value)
        case (Kind.SIZE | Kind.COUNT, int()) if not isinstance(value, bool):
            return value
        case (Kind.TEXT | Kind.CHOICE, str()) | (Kind.FLAG, bool()):
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
    """What was probably meant, as the end of a sentence; else everything that is known."""
    names = sorted(known)
    close = get_close_matches(unknown, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
