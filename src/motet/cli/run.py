"""`motet run`: a measured run of real members on this machine, and a check that what is stable is the same at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from motet.cli.node import load_config
from motet.errors import ConfigError, MotetError
from motet.harness.runs.interrupt import Interrupted, run_until_interrupted
from motet.harness.runs.perform import RunOutcome, perform
from motet.harness.runs.processes import ProcessMessage
from motet.harness.runs.report import print_outcome, summary
from motet.harness.runs.work import LEAST_SIZE, RunPlan, deadline_for, inbound, name_of, parse_deadline
from motet.runtime.faults import parse_fault

EXAMPLES = """
Examples:

  motet run --members 3 --senders 1 --messages 1000000 --size 100            how fast is it here

  motet run --members 5 --senders 3 --messages 900 --one-by-one --drop 0.2   under loss; exit code 1 if it does not hold

  motet run --messages 300 --strategy continuous --snapshot-after 100        a snapshot of all members and channels

  motet run --members 3 --messages 100000 --out runs/one                     keep journals and figures
"""
STRATEGIES = ("window", "continuous")
MOST_DROP = 0.9  # beyond it a request and its repair both get through less than once in a hundred times
SNAPSHOT_HELP = "Take a snapshot when a member has delivered so many messages, or soon after; at most --messages."


def run(
    members: Annotated[int, typer.Option(help="How many processes.", min=1, max=64)] = 3,
    senders: Annotated[int, typer.Option(help="How many of them send.", min=1)] = 1,
    messages: Annotated[int, typer.Option(help="Messages in all.", min=1)] = 1_000_000,
    size: Annotated[int, typer.Option(help="Bytes per message.", min=LEAST_SIZE, max=1 << 24)] = 100,
    order: Annotated[str, typer.Option(help="total or fifo.")] = "total",
    strategy: Annotated[str, typer.Option(help="How ordered messages travel: window or continuous.")] = "window",
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Every message is a frame of its own; else many share one.")
    ] = False,
    drop: Annotated[
        float, typer.Option(help=f"Share of datagrams between two members that is lost, 0 to {MOST_DROP}.")
    ] = 0.0,
    delay: Annotated[
        str, typer.Option(help="Delay datagrams between two members, TIME:SHARE, for example 20ms:0.5.")
    ] = "",
    snapshot_after: Annotated[int, typer.Option(help=SNAPSHOT_HELP, min=0)] = 0,
    deadline: Annotated[
        str, typer.Option(help="Give up after this time, for example 2min; without it, by how much there is to do.")
    ] = "",
    out: Annotated[str, typer.Option(help="Keep journals and result.json in this directory, which has none yet.")] = "",
    preset: Annotated[str, typer.Option(help="local, lan or wan.")] = "local",
    setting: Annotated[list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run a group of real processes over UDP on this machine, measure it, and compare what is stable at each of them.

    Exit code: 0 if all members have the same stable sequence, by content, and everything that was accepted was
    delivered or reported as failed; 1 if not, or if the deadline was reached, or a member died; 2 asked wrongly, and
    nothing was run; 130 or 143 interrupted by SIGINT or SIGTERM; 141 nobody reads the output any more.
    """
    if senders > members:
        raise ConfigError(f"--senders {senders} is more than --members {members}")
    _check_order(order, strategy)
    _check_shares(messages, drop, snapshot_after)
    directory = Path(out) if out else None
    _check_new(directory)
    for fault in (faults := inbound(drop, delay)):
        parse_fault(fault)  # say now what is wrong, and not in every process
    settings = settings_of(preset, strategy, one_by_one=one_by_one, more=setting or ())
    plan = RunPlan(
        members,
        senders,
        messages,
        size,
        "fifo" if order == "fifo" else "total",
        settings,
        faults,
        snapshot_after,
        deadline_s=parse_deadline(deadline)
        if deadline
        else deadline_for(messages, size, drop, delay, one_by_one=one_by_one),
    )
    outcome = _perform(plan, directory, is_quiet=as_json)
    _report(outcome, directory, as_json=as_json)
    raise typer.Exit(0 if outcome.holds else 1)


run.__doc__ = f"{run.__doc__}\n\n\b{EXAMPLES}"


def _check_order(order: str, strategy: str) -> None:
    if order not in ("total", "fifo"):
        raise ConfigError(f"--order {order} is unknown; allowed are total and fifo")
    check_strategy(strategy)
    if order == "fifo" and strategy != "window":
        raise ConfigError(
            f"--strategy {strategy} is for messages in total order, and --order fifo has none: they travel in the "
            "stream of their sender; leave --strategy out, or use --order total"
        )


def _check_shares(messages: int, drop: float, snapshot_after: int) -> None:
    if not 0 <= drop <= MOST_DROP:
        raise ConfigError(f"--drop {drop:g} is no share that a run can lose; allowed are 0 to {MOST_DROP}, such as 0.2")
    if snapshot_after > messages:
        raise ConfigError(
            f"--snapshot-after {snapshot_after} never comes: there are only {messages} messages to deliver; choose at "
            "most as many as --messages"
        )


def _check_new(out: Path | None) -> None:
    """Members would continue the journals of another run, and then lack what that one had."""
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be a directory: {error.strerror}; name another one") from error
    if any(out.glob("member-*")):
        raise ConfigError(
            f"--out {out} already holds the journals of a run, and a run begins with new ones; name another directory, "
            "or remove that one if nobody needs it"
        )


def check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise ConfigError(f"--strategy {strategy} is unknown; allowed are {' and '.join(STRATEGIES)}")


def settings_of(preset: str, strategy: str, *, one_by_one: bool, more: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """For the processes; whatever is wrong with one is said now."""
    given = [f"strategy={strategy}", *(("pack_messages=false",) if one_by_one else ()), *more]
    load_config("", preset, given)
    return (f"preset={preset}", *given)


def _perform(plan: RunPlan, out: Path | None, *, is_quiet: bool) -> RunOutcome:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    is_shown = not is_quiet and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_shown) as progress:
        tasks = [progress.add_task(name_of(index), total=plan.messages) for index in range(plan.members)]

        def watch(statuses: list[ProcessMessage]) -> None:
            for task, status in zip(tasks, statuses, strict=True):
                progress.update(task, completed=status.get("delivered", 0))

        try:
            return run_until_interrupted(perform(plan, journals=out, watch=watch))
        except Interrupted as interrupted:
            raise stopped(interrupted, *([out] if out is not None and out.exists() else [])) from None


def stopped(interrupted: Interrupted, *kept: Path) -> typer.Exit:
    """`kept`: directories with journals that stay."""
    left = f"the journals stay in {', '.join(map(str, kept))}" if kept else "nothing is left"
    typer.echo(f"motet: interrupted ({interrupted.signal.name}); all members were ended, {left}", err=True)
    return typer.Exit(interrupted.exit_code)


def _keep(made: dict[str, Any], out: Path) -> None:
    """After the report was printed: a full disk must not hide what the run found."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_text(json.dumps(made, indent=2))
    except OSError as error:
        raise MotetError(f"the result could not be written to {out}: {error.strerror}; it is printed above") from error


def _report(outcome: RunOutcome, out: Path | None, *, as_json: bool) -> None:
    made = summary(outcome)
    if as_json:
        typer.echo(json.dumps(made, indent=2))
    else:
        _print(outcome, out)
    if out is not None:
        _keep(made, out)


def _print(outcome: RunOutcome, out: Path | None) -> None:
    console = Console()
    print_outcome(outcome, console)
    if out is not None:
        console.print(f"Journals and result.json are in {out}. Next: motet audit {out}/member-*", soft_wrap=True)
