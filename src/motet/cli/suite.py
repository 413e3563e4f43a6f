"""`motet suite`: the tests of the ISIS total order document, on real processes, by one command."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from motet.cli.node import load_config
from motet.cli.run import check_strategy, stopped
from motet.errors import ConfigError
from motet.harness.runs.interrupt import Interrupted, run_until_interrupted
from motet.harness.runs.report import brief, print_statuses
from motet.harness.runs.suite import CASES, STRATEGIES, CaseResult, SuiteCase, as_dict, run_suite

EXAMPLES = """
Examples:

  motet suite                                            all cases with both strategies, in a few minutes

  motet suite --case drop-50 --case delay-half           two of them

  motet suite --strategy continuous --jobs 1 --json      one after the other, for programs
"""
JOBS = 3  # processes mostly wait for what is lost or late; more at once would delay each other on two cores


def suite(
    case: Annotated[
        list[str] | None, typer.Option(help=f"Only this case; repeatable. One of {', '.join(c.name for c in CASES)}.")
    ] = None,
    strategy: Annotated[str, typer.Option(help="Only window or only continuous; without it, both.")] = "",
    preset: Annotated[str, typer.Option(help="local, lan or wan: the settings are its defaults.")] = "local",
    jobs: Annotated[int, typer.Option(help="How many cases run side by side.", min=1, max=64)] = JOBS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Test total order on real processes: loss, delay, lost acknowledgements, a killed sender, a snapshot.

    Each case runs with both dissemination strategies, 3 to 5 members and the default settings of the preset; only
    messages are not packed, so that each is a frame of its own. A case holds if what is stable is the same at all
    members, by content, and everything that was accepted was delivered or reported as failed. Of a case that fails,
    journals and logs are kept; of the others nothing.

    Exit code: 0 if all cases hold; 1 if one does not; 2 asked wrongly; 130 or 143 interrupted by SIGINT or SIGTERM; 141
    nobody reads the output any more.
    """
    cases = _chosen(case or [])
    if strategy:
        check_strategy(strategy)
    load_config("", preset, [])
    console = Console(stderr=True)
    strategies = (strategy,) if strategy else STRATEGIES
    done: list[CaseResult] = []

    def notify(result: CaseResult) -> None:
        done.append(result)
        of_all = f"{len(done)}/{len(cases) * len(strategies)}"
        what = f"{result.case.name}, {result.strategy}, {result.members} members: {result.verdict}"
        console.print(f"{of_all} {what}, {result.outcome.seconds:.1f} s", highlight=False, soft_wrap=True)

    try:
        results = run_until_interrupted(run_suite(cases, strategies, preset, jobs, notify))
    except Interrupted as interrupted:
        kept = (one.outcome.directory for one in done)
        raise stopped(interrupted, *(path for path in kept if path is not None)) from None
    if as_json:
        holds = all(one.outcome.holds for one in results)
        typer.echo(json.dumps({"holds": holds, "preset": preset, "cases": list(map(as_dict, results))}, indent=2))
    else:
        _print(results, Console())
    raise typer.Exit(0 if all(one.outcome.holds for one in results) else 1)


suite.__doc__ = f"{suite.__doc__}\n\n\b{EXAMPLES}"


def _chosen(names: list[str]) -> list[SuiteCase]:
    """Each once, also if it is named twice."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise ConfigError(f"--case {name} is unknown; allowed are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(CASES)


def _print(results: list[CaseResult], console: Console) -> None:
    """80 columns are enough for it."""
    table = Table(box=None, padding=(0, 1))
    for number, name in enumerate(("case", "strategy", "members", "verdict", "seconds", "view changes", "resent")):
        table.add_column(name, justify="right" if number > 1 else "left", no_wrap=True)
    for one in results:
        style = "" if one.outcome.holds else "red"
        figures = (f"{one.outcome.seconds:.1f}", str(one.outcome.view_changes), brief(one.resent))
        table.add_row(one.case.name, one.strategy, str(one.members), one.verdict, *figures, style=style)
    console.print(table)
    failed = [one for one in results if not one.outcome.holds]
    for one in failed:
        _print_failure(one, console)
    if not failed:
        console.print(
            "[green]All hold: the stable sequences are the same by content, and everything that was accepted was "
            "delivered or reported as failed.[/]",
            soft_wrap=True,
        )


def _print_failure(one: CaseResult, console: Console) -> None:
    console.print()
    for line in (f"{one.case.name} with {one.strategy} FAILS:", *one.why):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    print_statuses(one.outcome, console)
    console.print(f"Journals and logs are in {one.outcome.directory}", highlight=False, soft_wrap=True)
