"""The options of `format("motet")`. Spark passes them as text; invalid ones are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from motet.errors import ConfigError

Where = int | Literal["earliest", "latest"]

KNOWN = {
    "members": "log services of members, HOST:PORT,HOST:PORT,...; the next one is tried when one fails",
    "path": "journal directories, separated by commas; the next one is tried when one lacks a position",
    "start": "first position, or earliest (the default), or latest",
    "end": "last position, or latest (the default): the stable position when the query is planned",
    "partitions": "number of partitions of a range; default: as many as rows_per_partition requires",
    "rows_per_partition": "approximate limit of rows per partition",
    "max_rows_per_trigger": "limit of rows per micro-batch; default: all that are stable",
    "batch_rows": "rows of one Arrow batch, 1 000 to 50 000",
    "pushdown": "true: apply Spark's filters; only for a DataFrame that is used in a single query (see the guide)",
    "token": "bearer token of the log service",
    "tls_roots": "PEM file of the certificates that verify the log services",
}
_SPARKS_OWN = {"paths", "checkpointlocation"}
FEWEST_BATCH_ROWS, MOST_BATCH_ROWS = 1_000, 50_000
MOST_PARTITIONS = 100_000
ROWS_PER_PARTITION = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    members: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    start: Where = "earliest"
    end: Where = "latest"
    partitions: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    max_rows_per_trigger: int | None = None
    batch_rows: int = 20_000
    pushdown: bool = False
    token: str | None = None
    tls_roots: str | None = None

    def __post_init__(self) -> None:
        if bool(self.members) == bool(self.path):
            raise ConfigError(
                "say where the log is, in one of two ways: option members=HOST:PORT,... for log services, "
                "or path=DIR,... for journals"
            )

    def __repr__(self) -> str:  # without the token, since plans and tracebacks may print this
        where = f"members={','.join(self.members)}" if self.members else f"path={','.join(self.path)}"
        return f"SourceOptions({where}, start={self.start}, end={self.end})"


def parse_source(options: Mapping[str, str]) -> SourceOptions:
    given = {key.lower(): value for key, value in options.items()}
    refuse_unknown(given, KNOWN)
    return SourceOptions(
        members=listed(given.get("members", "")),
        path=listed(given.get("path", "")),
        start=_where(given, "start", "earliest"),
        end=_where(given, "end", "latest"),
        partitions=number(given, "partitions", None, 1, MOST_PARTITIONS),
        rows_per_partition=number(given, "rows_per_partition", ROWS_PER_PARTITION, 1, 1 << 40) or ROWS_PER_PARTITION,
        max_rows_per_trigger=number(given, "max_rows_per_trigger", None, 1, 1 << 40),
        batch_rows=number(given, "batch_rows", 20_000, FEWEST_BATCH_ROWS, MOST_BATCH_ROWS) or 20_000,
        pushdown=_flag(given, "pushdown"),
        token=given.get("token"),
        tls_roots=given.get("tls_roots"),
    )


def refuse_unknown(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    for key in given:
        if key not in known and key not in _SPARKS_OWN and not key.startswith("spark."):
            raise ConfigError(f"there is no option {key!r} of format motet; there are: {', '.join(sorted(known))}")


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def number(given: Mapping[str, str], key: str, default: int | None, least: int, most: int) -> int | None:
    text = given.get(key)
    if text is None:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ConfigError(f"option {key}={text} is not a whole number from {least} to {most}")
    return int(text)


def _flag(given: Mapping[str, str], key: str) -> bool:
    text = given.get(key, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {key}={text} is neither true nor false")
    return text == "true"


def _where(given: Mapping[str, str], key: str, default: Literal["earliest", "latest"]) -> Where:
    text = given.get(key, default).lower()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"option {key}={text} is no position; write a number from 1 on, or earliest, or latest")
    return int(text)
