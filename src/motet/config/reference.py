"""The table of all settings, made from the settings themselves, so that no document falls behind."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from motet.config.model import Config
from motet.config.settings import allowed, key_of, setting_of, spell
from motet.config.sources import PREFIX

_HEAD = """# Settings

Every setting of `motet.Config`, with what the presets `local`, `lan` and `wan` make of it; the file
`src/motet/config/presets.py` says why. `Config()`, `Config.load()`, `from_toml` and `from_env` begin with the preset
`lan` unless one is named; `motet.join` without `config=` and `motet node` begin with `local`. This page is made from
the code by `motet.config.reference`.

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

_TAIL = """
## How long others are waited for

Every member measures loss and round trip of each of its links, from numbers that heartbeats carry. All waiting follows
from that, within the bounds that are set.

**Before a member is suspected.** It was silent for `suspect`, left `verify_attempts` probes unanswered, the silence has
lasted for a round trip with four deviations, and

    missed heartbeats · -ln(p) + unanswered probes · -ln(1 - (1-p)(1-p')) >= 18.4

where p is the measured share of its datagrams that are lost or come too late, p' the share of ours, both at least 5 %
and at most 95 %. 18.4 is -ln(10⁻⁸): a silence of a living member ends in suspicion with this chance at most, where
datagrams are lost independently of one another. At the latest it is suspected after `suspect_max`. Where less than 5 %
are lost, a crash is suspected `suspect` + `verify` after the last datagram arrived. A member that paused for longer
than `suspect` is probed only after as long a silence again, up to four times `suspect`; half of that is forgotten
every 5 s.

**Before an answer in a view change or a merge is late.**

    round trip + 4 deviations + tries · view_retry, at least view_answer, at most view_answer_max

where tries is how often a question has to be sent until all of them stay unanswered by chance once in 10⁶ times:
6 where nothing is lost, 49 where half is lost in each direction.
[Membership](../design/membership.md#failure-detection) has the figures measured in virtual time.
"""


def reference() -> str:
    """Markdown."""
    presets = (Config.local(), Config.lan(), Config.wan())
    return _HEAD + "".join(_row(field, presets) for field in fields(Config)) + _TAIL


def variables() -> list[str]:
    """The variables of the environment that are read."""
    return [PREFIX + key_of(field).upper() for field in fields(Config)]


def _row(field: Field[Any], presets: tuple[Config, ...]) -> str:
    setting = setting_of(field)
    values = [spell(setting, getattr(preset, field.name)) for preset in presets]
    same = len(set(values)) == 1
    cells = ["", values[0], ""] if same else values
    return f"| `{key_of(field)}` | {' | '.join(cells)} | {allowed(setting)} | {setting.about} |\n"
