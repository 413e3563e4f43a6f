"""Generates the reference page of all settings from the settings themselves, so that it cannot become outdated."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from motet.config.model import Config
from motet.config.settings import allowed, key_of, setting_of, spell
from motet.config.sources import PREFIX

_HEAD = """# Settings

Every setting of `motet.Config`, with its value in the presets `local`, `lan` and `wan`; the file
`src/motet/config/presets.py` gives the reasons. `Config()`, `Config.load()`, `from_toml` and `from_env` start from the
preset `lan` unless one is named; `motet.join` without `config=` and `motet node` start from `local`.
`motet.config.reference` generates this page from the code.

Values come from a preset, then a file, then the environment, then arguments; later ones win:

```python
Config.load("motet.toml", heartbeat="100ms")
```

In a file (TOML) a setting is a key at the top level: `heartbeat = "100ms"`. In the environment it is `MOTET_` and the
key in capitals: `MOTET_HEARTBEAT=100ms`; commas separate the items of a list. `preset` is a key as well. `MOTET_CONFIG`
names a file for programs that get none as an argument. Durations take ns, us, ms, s, min, h, d; sizes B, kB, MB, GB,
TB, KiB, MiB, GiB, TiB. Unknown settings and values outside the allowed range raise an error that names them.

| setting | local | lan | wan | allowed | meaning |
|---|---|---|---|---|---|
"""

_TAIL = """
## Timeouts that adapt to the network

Every member measures loss and round trip of each of its links, from numbers that heartbeats carry. The timeouts below
follow from these measurements, within the bounds that are set.

**Suspicion.** A member is suspected when it was silent for `suspect`, left `verify_attempts` probes unanswered, its
silence has lasted for a round trip plus four deviations, and

    missed heartbeats · -ln(p) + unanswered probes · -ln(1 - (1-p)(1-p')) >= 18.4

where p is the measured share of its datagrams that are lost or late and p' the share of ours, both at least 5 %
and at most 95 %. 18.4 is -ln(10⁻⁸): where datagrams are lost independently of one another, a silence of a living member
ends in suspicion with at most this probability. It is suspected after `suspect_max` in any case. Where less than 5 %
are lost, a crash is suspected `suspect` + `verify` after the last datagram arrived. A member that paused for longer
than `suspect` is probed only after an equally long silence, up to four times `suspect`; this tolerance halves every
5 s.

**Answers in a view change or a merge.** The timeout is

    round trip + 4 deviations + tries · view_retry, at least view_answer, at most view_answer_max

where tries is the number of attempts that all fail by chance once in 10⁶ times: 6 where nothing is lost, 49 where half
of all datagrams is lost in each direction.
[Membership](../design/membership.md#failure-detection) has the figures measured in virtual time.
"""


def reference() -> str:
    """The page in Markdown."""
    presets = (Config.local(), Config.lan(), Config.wan())
    return _HEAD + "".join(_row(field, presets) for field in fields(Config)) + _TAIL


def variables() -> list[str]:
    """The environment variables that are read."""
    return [PREFIX + key_of(field).upper() for field in fields(Config)]


def _row(field: Field[Any], presets: tuple[Config, ...]) -> str:
    setting = setting_of(field)
    values = [spell(setting, getattr(preset, field.name)) for preset in presets]
    same = len(set(values)) == 1
    cells = ["", values[0], ""] if same else values
    return f"| `{key_of(field)}` | {' | '.join(cells)} | {allowed(setting)} | {setting.about} |\n"
