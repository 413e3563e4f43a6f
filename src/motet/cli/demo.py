"""`motet demo`: five processes form a group, survive faults, and an audit checks what they delivered."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from motet.errors import ConfigError
from motet.harness.demo.director import run_demo
from motet.harness.demo.display import open_display, show_verdict
from motet.harness.demo.evaluation import DemoVerdict
from motet.harness.demo.plan import DEADLINE_S, QUICK_S, SECONDS, DemoPlan
from motet.harness.demo.status import DemoStatus

BROKEN, UNFINISHED, INTERRUPTED = 1, 2, 130  # exit codes
GOOD = "Every promise that was shown held."
BAD = "A PROMISE DID NOT HOLD, which is a bug: please tell us, with the files."
EXAMPLES = """
Examples:

  motet demo                              everything, in one to three minutes

  motet demo --quick --no-spark           a short form for a machine without Java

  motet demo --json > verdict.json        for a program; the story goes to stderr
"""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Where journals, table and report go. Default: a new one in motet-demo/.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of traffic.", min=1, max=3600)] = SECONDS,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds of traffic only.")] = False,
    deadline: Annotated[
        float, typer.Option(help="Seconds that an act may take beyond its traffic before the demo gives up.", min=0.1)
    ] = DEADLINE_S,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the table and the audit.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files even if the demo is interrupted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
) -> None:
    """Run five members, lose their datagrams, kill one, cut the network, and see whether every promise held.

    Exit code: 0 every promise that was shown held, 1 one did not, 2 the demo could not finish, 130 it was interrupted.
    """
    plan = _plan(out, QUICK_S if quick else seconds, no_spark, deadline)
    console = Console(stderr=as_json)
    status = DemoStatus()
    try:
        with open_display(console, status) as display:
            _introduce(console, plan)
            verdict = asyncio.run(run_demo(plan, status, display))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(_interrupted(console, plan, keep)) from None
    (plan.out / "verdict.json").write_text(json.dumps(verdict.as_dict(), indent=2) + "\n", encoding="utf-8")
    _report(console, plan, verdict, as_json)
    raise typer.Exit(_exit_code(verdict))


demo.__doc__ = f"{demo.__doc__}\n\n\b{EXAMPLES}"


def _exit_code(verdict: DemoVerdict) -> int:
    if verdict.is_broken:
        return BROKEN
    return UNFINISHED if verdict.failure is not None else 0


def _plan(out: Path | None, seconds: float, no_spark: bool, deadline: float) -> DemoPlan:
    reason = "--no-spark was given" if no_spark else _why_no_spark()
    directory = (out or Path("motet-demo") / time.strftime("%Y%m%d-%H%M%S")).absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} is not empty; name a new directory with --out, or remove it")
    return DemoPlan(directory, seconds, not reason, reason, deadline)


def _why_no_spark() -> str:
    """Why Spark cannot run here; empty if it can. Checked before anything is started."""
    from motet.spark.java import JavaMissingError, find_java

    if not find_spec("pyspark"):
        return "PySpark is not installed: pip install 'motet[spark]'"
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    return ""


def _introduce(console: Console, plan: DemoPlan) -> None:
    console.print("Motet: many voices, one piece, the same order for everyone.", style="bold", highlight=False)
    console.print(f"Everything goes to {plan.out}. Ctrl-C ends it at any moment.", highlight=False, soft_wrap=True)
    if not plan.with_spark:
        text = f"Without Spark there is no table and no audit ({plan.no_spark_because}); the rest is shown."
        console.print(text, style="yellow", highlight=False, soft_wrap=True, markup=False)


def _interrupted(console: Console, plan: DemoPlan, keep: bool) -> int:
    if keep:
        console.print(f"\nInterrupted. All processes are ended; the files are in {plan.out}.", soft_wrap=True)
        return INTERRUPTED
    shutil.rmtree(plan.out, ignore_errors=True)
    if plan.out.parent.name == "motet-demo" and not any(plan.out.parent.iterdir()):
        plan.out.parent.rmdir()
    console.print("\nInterrupted. All processes are ended and the files are removed (--keep keeps them).")
    return INTERRUPTED


def _report(console: Console, plan: DemoPlan, verdict: DemoVerdict, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(verdict.as_dict(), indent=2) + "\n")
        return
    show_verdict(console, verdict)
    for line in _ending(verdict):
        style = "bold green" if verdict.is_good else "bold red"
        console.print(line, style=style, highlight=False, soft_wrap=True, markup=False)
    for line in _next(plan, verdict) if verdict.failure is None else ():
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _ending(verdict: DemoVerdict) -> Iterator[str]:
    failure = verdict.failure
    if failure is not None:
        yield f"The demo could not go on. Act {failure.act}: {failure.reason}"
        yield f"Its log: {failure.log}"
    if failure is None or verdict.is_broken:
        yield f"{BAD if verdict.is_broken else GOOD} It took {verdict.seconds:.0f} s."


def _next(plan: DemoPlan, verdict: DemoVerdict) -> Iterator[str]:
    yield ""
    if verdict.report:
        yield f"The report, with plots, for your browser: {verdict.report}"
    yield "What to try next:"
    journals = _shortest(plan.journals)
    yield from _hint(f"motet journal cat {journals / 'ada'} | head", "what one member wrote down")
    if plan.with_spark:
        yield from _hint(f"motet audit {journals}", "the audit again, in words")
    yield from _hint(
        "motet node --group chat --bind 127.0.0.1:7800", "a group of your own; others join it from other terminals:"
    )
    yield from _hint("motet node --group chat --seeds 127.0.0.1:7800", "every line you type is delivered to all")
    yield from _hint("motet sim --seeds 0:200 --scenario membership", "200 virtual groups, each with faults of its own")


def _hint(command: str, meaning: str) -> Iterator[str]:
    yield f"  {command}"
    yield f"      {meaning}"


def _shortest(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
