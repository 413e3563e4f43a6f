"""The table of all settings, made from the settings themselves, so that no document falls behind."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from motet.config.model import Config
from motet.config.settings import allowed, key_of, setting_of, spell
from motet.config.sources import PREFIX

_HEAD = """# Settings

Every setting of `motet.Config`, with what the presets `local`, `lan` (the default) and `wan` make of it; the file
`src/motet/config/presets.py` says why. This page is made from the code by `motet.config.reference`.

A preset is where settings begin; a file, the environment and arguments follow, and what comes later wins:

```python
Config.load("motet.toml", heartbeat="100ms")
```

In a file (TOML) a setting is a key at the top level: `heartbeat = "100ms"`. In the environment it is `MOTET_` and the
key in capitals: `MOTET_HEARTBEAT=100ms`; a list is separated by commas. `preset` is a key as well. `MOTET_CONFIG` names
a file for programs that were given none. Durations take ns, us, ms, s, min, h, d; sizes B, kB, MB, GB, TB, KiB, MiB,
GiB, TiB. What is unknown, or outside what is allowed, is refused by name.

| setting | local | lan | wan | allowed | meaning |
|---|---|---|---|---|---|
"""


def reference() -> str:
    """Markdown."""
    presets = (Config.local(), Config.lan(), Config.wan())
    return _HEAD + "".join(_row(field, presets) for field in fields(Config))


def variables() -> list[str]:
    """The variables of the environment that are read."""
    return [PREFIX + key_of(field).upper() for field in fields(Config)]


def _row(field: Field[Any], presets: tuple[Config, ...]) -> str:
    setting = setting_of(field)
    values = [spell(setting, getattr(preset, field.name)) for preset in presets]
    same = len(set(values)) == 1
    cells = ["", values[0], ""] if same else values
    return f"| `{key_of(field)}` | {' | '.join(cells)} | {allowed(setting)} | {setting.about} |\n"
