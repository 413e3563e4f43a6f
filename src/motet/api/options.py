"""The options of `motet.join`: whoever has no type checker is told in a sentence what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from motet.config import Config
from motet.errors import ConfigError

if TYPE_CHECKING:
    from motet.api.joining import Joining

_TEXTS = ("group", "bind")
_TEXTS_OR_NONE = ("name", "advertise")
_FLAGS = ("thread", "consume", "stable_events", "wait")
_CALLABLES = ("on_call", "state_provider", "state_receiver")


def checked_config(config: object) -> Config:
    if isinstance(config, Config):
        return config
    raise ConfigError(
        f"config is a motet.Config, and this is {type(config).__name__}: {config!r:.80}; "
        "write config=motet.Config.local(heartbeat='100ms'), or leave it out"
    )


def checked_seeds(seeds: object) -> list[str]:
    """A text is one seed, or several with commas between them."""
    if isinstance(seeds, str):
        return [seed.strip() for seed in seeds.split(",") if seed.strip()]
    if not isinstance(seeds, Sequence) or not all(isinstance(seed, str) for seed in seeds):
        raise ConfigError(
            f"seeds = {seeds!r:.80} cannot be read; allowed is 'HOST:PORT,HOST:PORT', or a list of such texts; "
            "of a group that is there already, take str(group.address.endpoint)"
        )
    return list(seeds)


def check_options(joining: Joining) -> None:
    """Everything but `config` and `seeds`."""
    for option in _TEXTS:
        _require(joining, option, str, "a text")
    for option in _TEXTS_OR_NONE:
        _require(joining, option, str | None, "a text, or None")
    for option in _FLAGS:
        _require(joining, option, bool, "True or False")
    for option in _CALLABLES:
        if not (getattr(joining, option) is None or callable(getattr(joining, option))):
            raise _wrong(joining, option, "a function, or None")
    _require(joining, "journal", str | Path | None, "a directory, or None")
    _require(joining, "replay_from", int | None, "a position, or None")
    _require(joining, "timeout", int | float | None, "a number of seconds, or None")
    if not joining.group:
        raise _wrong(joining, "group", "the name of a group, not an empty text")


def _require(joining: Joining, option: str, kind: object, allowed: str) -> None:
    if not isinstance(getattr(joining, option), kind):  # type: ignore[arg-type]  # a union is a class info
        raise _wrong(joining, option, allowed)


def _wrong(joining: Joining, option: str, allowed: str) -> ConfigError:
    value = getattr(joining, option)
    return ConfigError(f"{option} = {value!r:.80} is not allowed for motet.join; it is {allowed}")
