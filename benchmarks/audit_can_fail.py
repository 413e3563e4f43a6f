"""The audit can fail: each kind of forgery in journals of a million rows.

    PYTHONPATH=. python benchmarks/audit_can_fail.py

Five members; in each turn one journal is falsified and sealed again, so that every checksum is right. The line says
what the audit named for the falsified member. Bob's and carol's segments begin at the same positions, so that they can
change places and nothing else tells.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from motet.audit.audit import run_audit
from motet.audit.metadata import FOREIGN
from motet.audit.verdict import AuditVerdict
from motet.log.journal import Fsync, JournalConfig
from motet.log.journal.synthetic import write_journal
from motet.spark.session import build_session
from tests.spark import forge

NAMES = ("alice", "bob", "carol", "dave", "eve")
FORGED = ("bob", "carol")
SEGMENT_MB = (8, 9, 9, 11, 12)


def main() -> None:
    options = arguments()
    data = Path(options.data)
    shutil.rmtree(data, ignore_errors=True)
    for member, name in enumerate(NAMES):
        config = JournalConfig(fsync=Fsync.NEVER, segment_bytes=SEGMENT_MB[member] << 20)
        write_journal(data / name, "g", options.rows, member=member, senders=5, views=4, config=config)
    spark = build_session(f"local[{options.cores}]", "audit_can_fail", is_light=True)
    failed = 0
    for what, (check, forgery) in turns(options.rows).items():
        keep(data)
        position = forgery(data / "bob")
        verdict = run_audit(spark, [str(data / name) for name in NAMES])
        named = [one for one in verdict.of(check) if one.position == position and one.member == "bob"]
        failed += not named
        told = named[0].text if named else f"NOT NAMED; {verdict.findings[:2]}"
        print(f"  {'ok ' if named else 'BAD'} {what:<34} {told}   ({verdict.seconds:.1f} s)", flush=True)
        if named and named[0].kind == FOREIGN:
            failed += not swap_is_told(verdict)
        put_back(data)
    sys.exit(1 if failed else 0)


def keep(data: Path) -> None:
    for name in FORGED:
        shutil.copytree(data / name, data / "kept" / name)


def put_back(data: Path) -> None:
    for name in FORGED:
        shutil.rmtree(data / name)
        (data / "kept" / name).rename(data / name)


def swap_is_told(verdict: AuditVerdict) -> bool:
    """Of both members, and of nobody else; each with the owner that is expected and the one that is found."""
    for one in verdict.findings:
        print(f"      {one.member}: expected {one.expected}, found {one.found}")
    told = [(one.member, one.kind, one.expected.split()[3], one.found.split()[2]) for one in verdict.findings]
    names = [(member, kind, due.partition("#")[0], found.partition("#")[0]) for member, kind, due, found in told]
    return names == [("bob", FOREIGN, "bob", "carol"), ("carol", FOREIGN, "carol", "bob")]


def turns(rows: int) -> dict[str, tuple[str, Callable[[Path], int]]]:
    """What is done, which guarantee must be named, and the forgery: it says at which position."""

    def at(shift: int, forgery: Callable[[Path, int], object]) -> Callable[[Path], int]:
        def act(path: Path) -> int:
            position = inside_a_frame(path, rows // 2)
            forgery(path, position)
            return position + shift

        return act

    def cut(path: Path) -> int:
        segment, place = forge.Forgery(path).frame_of(rows * 9 // 10)
        forge.cut_tail(path, segment[place].head.last)
        return segment[place].head.last + 1

    def before_a_view(path: Path) -> int:
        forge.drop(path, rows // 4)
        return rows // 4

    def swap(path: Path) -> int:
        forge.swap_segments(path, path.parent / "carol", 2)
        return int(sorted(path.glob("*.seg"))[2].stem)

    return {
        "two neighbours reordered": ("total order", at(0, forge.exchange)),
        "one doubled": ("no duplicates", at(1, forge.double)),
        "one dropped": ("agreement", at(0, forge.drop)),
        "one byte changed": ("integrity", at(0, forge.change_byte)),
        "two members' segments swapped": ("integrity", swap),
        "a stable position rolled back": ("stability", cut),
        "a FIFO pair broken": ("fifo", lambda path: forge.break_fifo(path, rows * 3 // 5)),
        "a message that nobody sent": ("integrity", at(0, lambda path, p: forge.insert(path, p, b"forged"))),
        "one removed between two views": ("virtual synchrony", before_a_view),
    }


def inside_a_frame(path: Path, around: int) -> int:
    forgery = forge.Forgery(path)
    return next(
        head.position + 3
        for head in (segment[place].head for segment, place in forgery.frames())
        if head.position > around and head.messages > 8 and head.sender != forge.owner_of(path)
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each journal")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", default="/tmp/motet-audit-can-fail")
    return parser.parse_args()


if __name__ == "__main__":
    main()
