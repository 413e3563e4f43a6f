"""A streaming query behind a live group. Run: PYTHONPATH=. python benchmarks/spark_stream.py

Three members in processes of their own, with journals and log services. One multicasts messages of 100 B in total order
as fast as the group takes them, for some seconds; a streaming query reads them, from the log services or with --path
from the journals. Both are measured over the same time: how many rows became stable, how many the query had finished,
and how far it was behind. A query that keeps up is behind by a batch, and not by more and more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from motet.log.service.client import LogClient
from motet.spark.ending import stop_between_batches
from motet.spark.session import build_session

MEMBER = """
import asyncio, sys, time
from dataclasses import replace
import motet

async def main(name, bind, seed, journal, serve, size):
    config = replace(motet.Config.local(), log_bind=serve)
    async with motet.join("stream", bind=bind, name=name, seeds=[seed], config=config, journal=journal) as group:
        eating = asyncio.create_task(eat(group))
        while len(group.view.members) < 3:
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        while seconds := await asyncio.to_thread(sys.stdin.readline):
            ends_at = time.monotonic() + float(seconds)
            while time.monotonic() < ends_at:
                await group.multicast_many([bytes(size)] * 500)
            print("sent", flush=True)
        eating.cancel()

async def eat(group):
    async for _ in group.batches():
        pass

asyncio.run(main(*sys.argv[1:6], int(sys.argv[6])))
"""


def main() -> None:
    options = arguments()
    out = Path(options.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    binds = [f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}" for _ in range(3)]
    services = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    spark = build_session(f"local[{options.cores}]", "spark_stream")
    members = [start(number, binds, services, out, options.size) for number in range(3)]
    try:
        for member in members:
            assert member.stdout is not None
            assert member.stdout.readline().strip() == "ready"
        measure(options, spark, members, services, out)
    finally:
        for member in members:
            member.kill()
            member.wait()
        spark.stop()


def start(number: int, binds: list[str], services: list[str], out: Path, size: int) -> subprocess.Popen[str]:
    where = (binds[number], binds[0], str(out / f"m{number}"), services[number], str(size))
    command = [sys.executable, "-c", MEMBER, f"m{number}", *where]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def measure(
    options: argparse.Namespace, spark: Any, members: list[subprocess.Popen[str]], services: list[str], out: Path
) -> None:
    where = {"path": ",".join(str(out / f"m{number}") for number in range(3))} if options.path else {}
    where = where or {"members": ",".join(services)}
    rows = spark.readStream.format("motet").options(**where).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(out / "checkpoint")).start()
    say(members[0], options.warm_up)  # the JVM compiles, workers start
    with LogClient(services) as client:
        wait_for(query, client.offsets().stable)
        first, began = client.offsets().stable, time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(say, members[0], options.seconds)
            lags = list(watched(sending, client, query))
        seconds = time.perf_counter() - began
        stable, done = client.offsets().stable, position_of(query)
    wait_for(query, stable)
    behind_s = time.perf_counter() - began - seconds
    stop_between_batches([query])
    report(options, stable - first, done - first, seconds, behind_s, lags)


def watched(sending: Future[None], client: LogClient, query: Any) -> Iterator[int]:
    """How many rows the query is behind, twice a second."""
    while not sending.done():
        yield client.offsets().stable - position_of(query)
        time.sleep(0.5)
    sending.result()


def say(member: subprocess.Popen[str], seconds: float) -> None:
    """It multicasts for so long; it is back when the last message has been taken."""
    assert member.stdin is not None
    assert member.stdout is not None
    member.stdin.write(f"{seconds}\n")
    member.stdin.flush()
    assert member.stdout.readline().strip() == "sent"


def position_of(query: Any) -> int:
    """What the last finished batch had read."""
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    return int((json.loads(end) if isinstance(end, str) else end)["position"]) if end else 0


def wait_for(query: Any, position: int) -> None:
    while position_of(query) < position:
        if not query.isActive:
            raise SystemExit(f"the query failed: {query.exception()}")
        time.sleep(0.05)


def report(options: argparse.Namespace, made: int, done: int, seconds: float, behind_s: float, lags: list[int]) -> None:
    figures = {"produced": made, "ingested": done, "seconds": seconds, "lags": lags, "behind_s": behind_s}
    if options.json:
        print(json.dumps(figures))
        return
    half = len(lags) // 2
    early, late = max(lags[:half], default=0), max(lags[half:], default=0)
    source = "journals" if options.path else "log services"
    print(f"\n3 members, one sends {options.size} B in total order for {seconds:.1f} s; the query reads from {source}")
    print(f"  produced  {made:>12} rows   {made / seconds:>12,.0f} rows/s")
    print(f"  ingested  {done:>12} rows   {done / seconds:>12,.0f} rows/s   {done / max(made, 1):6.1%} of it")
    print(f"  behind    {made - done:>12} rows   caught up {behind_s:.2f} s after the last one was sent")
    print(f"  at most   {early:>12} rows in the first half, {late} in the second")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--path", action="store_true", help="from the journals instead of the log services")
    parser.add_argument("--out", default="/tmp/motet-spark-stream")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
