"""Exactly once, end to end, with real members. Run: python benchmarks/spark_exactly_once.py [--sink]

Members are processes that lose datagrams on purpose and keep journals. While rows are appended, a streaming query
copies the log into Parquet (or, with --sink, back into the group). Members that serve it and its driver are killed with
SIGKILL at random moments; members restart with their journals, drivers from the checkpoint. In the end every stable
position must be in the output exactly once, and equal to what every journal says.

Rows come in by appends that are repeated until they are stable. A plain multicast would not do: when its sender loses
touch with the primary component, as on a busy machine it may, it is told that the message failed, and somebody has to
send it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from motet.audit.audit import run_audit
from motet.audit.verdict import to_text
from motet.log.journal.reader import JournalReader
from motet.log.service.client import LogClient
from motet.spark.session import build_session

ROOT = Path(__file__).parent.parent
COPY = b"copy "
PRODUCER = 1


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class LoggingMember:
    def __init__(self, number: int, out: Path, drop: float) -> None:
        self.name = f"m{number}"
        self.bind = f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
        self.serve = f"127.0.0.1:{free_port()}"
        self.journal = out / "journals" / self.name
        self._log = out / f"{self.name}.log"
        self._drop = drop

    def start(self, seeds: str) -> None:
        command = [sys.executable, "-m", "motet", "node", "--group", "orders", "--bind", self.bind, "--name", self.name]
        command += ["--seeds", seeds, "--journal", str(self.journal), "--serve", self.serve, "--json"]
        command += ["--fault", f"drop={self._drop}"] if self._drop else []
        log = self._log.open("ab")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class QueryDriver:
    def __init__(self, members: str, out: Path, sink: str) -> None:
        self._command = [sys.executable, "-m", "tests.spark.driver", members, str(out), *([sink] if sink else [])]
        self._log = out / "driver.log"
        self.failures = 0

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, start_new_session=True, cwd=ROOT, stdout=log, stderr=log)

    def restart_if_failed(self) -> None:
        """As whoever runs queries does: one that ended by itself is started again. A JVM whose Python does not come up
        within ten seconds gives up, which happens on a machine that is busy enough."""
        if self.process.poll() is not None:
            self.failures += 1
            print(f"  the driver ended by itself ({self.failures}); see {self._log}", flush=True)
            self.start()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait(what: str, condition: Callable[[], bool], driver: QueryDriver | None = None, seconds: float = 300.0) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        if driver is not None:
            driver.restart_if_failed()
        if time.monotonic() > ends_at:
            raise SystemExit(f"gave up waiting for: {what}")
        time.sleep(0.2)
    print(f"  {what}", flush=True)


def commits(out: Path) -> int:
    return len(list((out / "checkpoint" / "commits").glob("[0-9]*")))


def main() -> None:
    options = arguments()
    out = Path(options.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rng = random.Random(options.seed)
    members = [LoggingMember(number, out, options.drop) for number in range(options.members)]
    seeds = ",".join(member.bind for member in members[:3])
    for member in members:
        member.start(seeds)
    services = ",".join(member.serve for member in members)
    driver = QueryDriver(services, out, services if options.sink else "")
    try:
        run(options, rng, members, seeds, driver, out)
    finally:
        driver.kill()
        for member in members:
            member.kill()


def run(
    options: argparse.Namespace,
    rng: random.Random,
    members: list[LoggingMember],
    seeds: str,
    driver: QueryDriver,
    out: Path,
) -> None:
    client, feed = (LogClient([member.serve for member in members], timeout_s=120) for _ in range(2))
    feeding = ThreadPoolExecutor(1)
    wait("the group is there", lambda: answers(client))
    driver.start()
    kills = ["driver"] * options.driver_kills + ["member"] * options.member_kills
    rng.shuffle(kills)
    share = options.rows // (len(kills) + 1)
    for round_, victim in enumerate([*kills, ""]):
        rows = [b"%d-%d " % (round_, number) + b"x" * 80 for number in range(share)]
        fed = feeding.submit(feed.append_all, rows, producer=PRODUCER, batch_id=round_)
        before = commits(out)
        wait(f"round {round_}: the query goes on (batch {before})", partial(has_gone_on, out, before), driver)
        time.sleep(rng.random() * 2)
        if victim == "driver":
            driver.kill()
            driver.start()
        elif victim == "member":
            member = members[rng.randrange(len(members))]
            member.kill()
            member.start(seeds)
        print(f"  killed: {victim or 'nobody'}", flush=True)
        fed.result()
    feeding.shutdown()
    feed.close()
    wanted = share * (len(kills) + 1)
    wait("everything is stable", lambda: client.offsets().stable >= wanted)
    if options.sink:
        wait("everything is copied", lambda: copies(client) >= wanted, driver)
    else:
        wait("the query has read all", lambda: read_up_to(out) >= client.offsets().stable, driver)
    client.close()
    evaluate(options, members, out, wanted)


def has_gone_on(out: Path, before: int) -> bool:
    return commits(out) > before


def answers(client: LogClient) -> bool:
    try:
        client.offsets()
    except Exception:
        return False
    return True


def copies(client: LogClient) -> int:
    last = client.offsets().stable
    values = (value for batch in client.read(1, last) for value in batch.column("payload").to_pylist())
    return sum(value.startswith(COPY) for value in values)


def read_up_to(out: Path) -> int:
    files = sorted((out / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    done = [path for path in files if (out / "checkpoint" / "commits" / path.name).exists()]
    if not done:
        return 0
    return int(json.loads(done[-1].read_text().splitlines()[-1])["position"])


def evaluate(options: argparse.Namespace, members: list[LoggingMember], out: Path, wanted: int) -> None:
    spark = build_session("local[2]", "judge", is_light=True)
    verdict = run_audit(spark, [str(out / "journals")])
    print(to_text(verdict))
    journal = JournalReader(members[-1].journal)
    payloads = [
        value
        for batch in journal.read(1, journal.bounds().stable, 20_000)
        for value in batch.column("payload").to_pylist()
    ]
    originals = [value for value in payloads if not value.startswith(COPY)]
    assert len(set(originals)) == len(originals) == wanted, (len(originals), len(set(originals)), wanted)
    if options.sink:
        once = [value for value in payloads if value.startswith(COPY)]
        assert sorted(once) == sorted(COPY + value for value in originals), "copies differ"
    else:
        table = spark.read.parquet(str(out / "rows")).orderBy("position").select("position", "payload").collect()
        assert [row["position"] for row in table] == list(range(1, len(payloads) + 1))
        assert [bytes(row["payload"]) for row in table] == payloads
    killed = f"{options.driver_kills} drivers and {options.member_kills} members killed"
    print(f"OK: {wanted} messages, each exactly once; {killed}")
    sys.exit(verdict.exit_code)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--member-kills", type=int, default=2)
    parser.add_argument("--driver-kills", type=int, default=3)
    parser.add_argument("--sink", action="store_true", help="write into the group instead of Parquet")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="/tmp/motet-exactly-once")
    return parser.parse_args()


if __name__ == "__main__":
    main()
