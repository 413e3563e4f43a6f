"""What some peers need beside their members: a broker, started for one measurement and stopped after it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.field import environment, program
from motet.errors import MotetError
from motet.harness.bench.peer import Server

TIMEOUT_S = 10.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _running(name: str, arguments: list[str], directory: str) -> Iterator[subprocess.Popen[bytes]]:
    path = program(name)
    if path is None:
        raise MotetError(f"{name} is not installed")
    with Path(directory, f"{name}.log").open("wb") as log:
        process = subprocess.Popen([path, *arguments], stdout=log, stderr=log, env=environment(), cwd=directory)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    timeout = time.monotonic() + TIMEOUT_S
    while time.monotonic() < timeout and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise MotetError(f"{process.args!r} does not listen on port {port}")


@contextlib.contextmanager
def nats(directory: str) -> Iterator[str]:
    port = free_port()
    config = Path(directory, "nats.conf")
    config.write_text(
        f'host: 127.0.0.1\nport: {port}\nmax_pending: 1GB\njetstream {{ store_dir: "{directory}", max_mem: 4GB }}\n'
    )
    with _running("nats-server", ["-c", str(config)], directory) as process:
        _until_open(port, process)
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def redis(directory: str) -> Iterator[str]:
    port = free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory]
    arguments += ["--client-output-buffer-limit", "normal", "0", "0", "0"]
    with _running("redis-server", arguments, directory) as process:
        _until_open(port, process)
        yield f"127.0.0.1:{port}"


COROSYNC = """
totem {{
  version: 2
  cluster_name: bench
  transport: udpu
  crypto_cipher: none
  crypto_hash: none
}}
nodelist {{
  node {{
    ring0_addr: 127.0.0.1
    nodeid: 1
    name: one
  }}
}}
quorum {{
  provider: corosync_votequorum
  expected_votes: 1
}}
logging {{
  to_stderr: yes
  to_syslog: no
}}
system {{
  state_dir: {directory}
}}
"""


@contextlib.contextmanager
def corosync(directory: str) -> Iterator[str]:
    """A daemon that is a cluster of its own; it must be run as root."""
    config = Path(directory, "corosync.conf")
    config.write_text(COROSYNC.format(directory=directory))
    with _running("corosync", ["-f", "-c", str(config)], directory) as process:
        log, timeout = Path(directory, "corosync.log"), time.monotonic() + TIMEOUT_S
        while b"ready to provide service" not in log.read_bytes():
            if time.monotonic() > timeout or process.poll() is not None:
                raise MotetError(f"corosync did not start: {log.read_text()[-500:]}")
            time.sleep(0.05)
        yield "corosync"


SERVERS: dict[str, Server] = {"nats": nats, "jetstream": nats, "redis": redis, "corosync": corosync}
