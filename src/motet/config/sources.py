"""Sources of settings: a preset, then a file, then the environment, then arguments; later ones win.

In a file (TOML) each setting is a key at the top level; in the environment it is MOTET_ and the key in capitals, and a
list is separated by commas. `preset` is a key like the others. An unknown key is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any, NamedTuple

from motet.config.presets import DEFAULT_PRESET, PRESETS
from motet.config.settings import check, key_of, nearest, read
from motet.errors import ConfigError

PREFIX = "MOTET_"
FILE_VARIABLE = "MOTET_CONFIG"
PRESET = "preset"
# Variables that belong to the command line, and what Kubernetes sets for a service whose name begins with motet.
_NOT_SETTINGS = frozenset({FILE_VARIABLE, "MOTET_GROUP", "MOTET_NAME", "MOTET_BIND", "MOTET_JOURNAL"})
_OF_KUBERNETES = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")

Fields = Mapping[str, Field[Any]]  # of the config class, by the key that people write


class _Given(NamedTuple):
    """One value as it was written, and its source."""

    key: str
    value: object
    where: str  # prefix of an error text


def gather(
    settings: Iterable[Field[Any]],
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The constructor arguments for these fields, merged from the given sources."""
    known = {key_of(field): field for field in settings}
    given = [
        *(_of_file(known, path) if path else ()),
        *_of_environ(known, environ or {}),
        *_of_arguments(known, overrides or {}),
    ]
    preset: Mapping[str, object] = PRESETS[DEFAULT_PRESET]
    values: dict[str, object] = {}
    for key, value, where in given:
        if key == PRESET:
            preset = _preset(value, where)
        else:
            values[known[key].name] = _read(known[key], value, where)
    return {**preset, **values}


def named_file(environ: Mapping[str, str]) -> str | None:
    """The config file that the environment names."""
    return environ.get(FILE_VARIABLE)


def _preset(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, str) or value not in PRESETS:
        raise ConfigError(f"{where}preset = {value!r} is outside what is allowed: {', '.join(PRESETS)}")
    return PRESETS[value]


def _read(field: Field[Any], value: object, where: str) -> object:
    try:
        made = read(field, value)
        check(field, made)
        return made
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _of_file(known: Fields, path: str | Path) -> Iterator[_Given]:
    for key, value in _toml(Path(path)).items():
        if isinstance(value, dict):
            raise ConfigError(f"in {path}: [{key}] is a table; settings stand at the top level of the file")
        if key not in known and key != PRESET:
            raise ConfigError(f"in {path}: {key} is unknown; {nearest(key, (*known, PRESET))}")
        yield _Given(key, value, f"in {path}: ")


def _toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the config file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {path} is not valid TOML: {error}") from None


def _of_environ(known: Fields, environ: Mapping[str, str]) -> Iterator[_Given]:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in _NOT_SETTINGS:
            continue
        key = name.removeprefix(PREFIX).lower()
        if key in known or key == PRESET:
            yield _Given(key, environ[name], f"in the environment, {name}: ")
        elif not _OF_KUBERNETES.fullmatch(name):
            variables = (PREFIX + key.upper() for key in (*known, PRESET))
            raise ConfigError(f"{name} in the environment is unknown; {nearest(name, variables)}")


def _of_arguments(known: Fields, overrides: Mapping[str, object]) -> Iterator[_Given]:
    for key, value in overrides.items():
        if key not in known and key != PRESET:
            raise ConfigError(f"there is no setting {key}; {nearest(key, (*known, PRESET))}")
        yield _Given(key, value, "")
