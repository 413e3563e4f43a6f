"""A Spark standalone cluster on this machine: one master and some workers, on loopback, for as long as a `with` lasts.

    with local_cluster(workers=2) as master:
        spark = build_session(master)

From a shell, MASTER in a command is replaced by the address; without a command the cluster stays until Ctrl-C:

    python -m motet.spark.cluster --workers 2 motet campaign --runs 1000 --out campaign --master MASTER

Use it to test what differs on a real cluster: executors are separate processes that share no memory with the driver.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from motet.errors import MotetError
from motet.spark.environment import import_path, python_variables
from motet.spark.java import java_for_spark
from motet.spark.session import LOG4J, LOOPBACK

STARTING_S = 120.0
_DEPLOY = "org.apache.spark.deploy"


class ClusterFailedError(MotetError):
    """The cluster did not start; the text ends with the last lines of its log."""


@contextmanager
def local_cluster(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """The master's address. `cores` and `memory` are those of each worker."""
    with ExitStack() as stack:
        stack.enter_context(java_for_spark())
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="motet-cluster-")))
        port, ui = _free_port(), _free_port()
        master = f"spark://{LOOPBACK}:{port}"
        stack.enter_context(_running(scratch, "master", "master.Master", "--port", str(port), "--webui-port", str(ui)))
        _wait_for(port, scratch / "master.log")
        for number in range(workers):
            place = scratch / f"worker-{number}"
            wanted = ("--cores", str(cores), "--memory", memory, "--work-dir", str(place), "--webui-port", "0")
            stack.enter_context(_running(scratch, place.name, "worker.Worker", *wanted, master))
        yield master


@contextmanager
def _running(scratch: Path, name: str, kind: str, *arguments: str) -> Iterator[None]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", "--host", LOOPBACK]
    java = f"-Dlog4j2.configurationFile={LOG4J.as_uri()} -XX:TieredStopAtLevel=1"
    path = import_path()
    python = python_variables() | ({"PYTHONPATH": path} if path else {})
    daemon = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": java}
    with (scratch / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*command, *arguments], env=os.environ | python | daemon, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int, log: Path) -> None:
    ends_at = time.monotonic() + STARTING_S
    while time.monotonic() < ends_at:
        with socket.socket() as one:
            if one.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.1)
    raise ClusterFailedError(f"Spark's master did not start within {STARTING_S:.0f} s: {log.read_text()[-500:]}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m motet.spark.cluster", description="A Spark cluster on loopback.")
    parser.add_argument("--workers", type=int, default=2, help="processes that run executors (default 2)")
    parser.add_argument("--cores", type=int, default=1, help="cores of each worker (default 1)")
    parser.add_argument("--memory", default="1g", help="memory of each worker (default 1g)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run, with MASTER for the master's address")
    options = parser.parse_args(arguments)
    try:
        with local_cluster(options.workers, options.cores, options.memory) as master:
            if options.command:
                return subprocess.call([part.replace("MASTER", master) for part in options.command])
            sys.stdout.write(f"{master}\n")
            sys.stdout.flush()
            threading.Event().wait()
    except MotetError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
