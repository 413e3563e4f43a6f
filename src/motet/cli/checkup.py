"""The checks of `motet doctor`. Each one tries the operation itself instead of reading limits, and says what to do.

A check never raises: a check that cannot run is a result, too. FAIL is for what every member needs; what only one
feature needs is a NOTE when it is missing.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum, unique
from importlib.util import find_spec
from pathlib import Path

from motet.config import Config
from motet.errors import MotetError
from motet.log.journal.disk import DIRECTORY_MODE
from motet.protocol.core.identity import Endpoint

TIMEOUT_S = 1.0
ENOUGH_FILES = 1024
LITTLE_SPACE = 1 << 30
SLOW_SYNC_S = 0.05
OLDEST_PYTHON = (3, 11)
FORCED = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}  # SO_RCVBUFFORCE, SO_SNDBUFFORCE of Linux


@unique
class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # fine, unless you want that feature
    WARN = "warn"  # works, and could be better
    FAIL = "fail"  # a member cannot run like this


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    verdict: CheckVerdict
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Examination:
    bind: Endpoint
    journal: str | None
    config: Config


Check = Callable[[Examination], CheckResult]


def examine(examination: Examination) -> list[CheckResult]:
    return [_safely(name, check, examination) for name, check in CHECKS]


def _safely(name: str, check: Check, examination: Examination) -> CheckResult:
    try:
        return check(examination)
    except Exception as error:
        return CheckResult(name, CheckVerdict.WARN, f"could not be checked: {error}", "tell us: this should not happen")


# The process


def check_python(examination: Examination) -> CheckResult:
    running = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return CheckResult("python", CheckVerdict.FAIL, f"Python {running}", f"install Python {wanted} or newer")
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    return CheckResult("python", CheckVerdict.OK, f"Python {running} on {system}")


def check_loop(examination: Examination) -> CheckResult:
    if find_spec("uvloop"):
        return CheckResult("event loop", CheckVerdict.OK, "uvloop is there")
    return CheckResult("event loop", CheckVerdict.NOTE, "no uvloop; the standard loop is slower", "pip install uvloop")


def check_files(examination: Examination) -> CheckResult:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= ENOUGH_FILES or soft == resource.RLIM_INFINITY:
        return CheckResult("open files", CheckVerdict.OK, f"up to {soft}")
    return CheckResult(
        "open files",
        CheckVerdict.WARN,
        f"only {soft} (the hard limit is {hard}); segments, connections and pages need some each",
        f"ulimit -n {ENOUGH_FILES}, or LimitNOFILE={ENOUGH_FILES} in the systemd unit",
    )


def check_clock(examination: Examination) -> CheckResult:
    """Protocols use the monotonic clock only; the wall clock is for people and for latencies between machines."""
    first, second = time.monotonic_ns(), time.monotonic_ns()
    if second < first:
        return CheckResult(
            "clock", CheckVerdict.FAIL, "the monotonic clock runs backwards", "ask whoever runs this machine"
        )
    state = _clock_is_synchronised()
    if state is False:
        return CheckResult(
            "clock",
            CheckVerdict.WARN,
            "the wall clock is not synchronised: order is not affected, but times and latencies between machines are",
            "timedatectl set-ntp true, or run chrony",
        )
    said = "synchronised" if state else "whether it is synchronised cannot be told here; order does not depend on it"
    return CheckResult("clock", CheckVerdict.OK, said)


def _clock_is_synchronised() -> bool | None:
    command = shutil.which("timedatectl")
    if command is None:
        return None
    asked = [command, "show", "--property=NTPSynchronized", "--value"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return {"yes": True, "no": False}.get(answer)


# The network


def check_sockets(examination: Examination) -> CheckResult:
    """A datagram of the configured frame size, to ourselves."""
    bind, size = examination.bind, examination.config.frame_bytes
    try:
        with _udp(bind) as sock:
            sock.settimeout(TIMEOUT_S)
            sock.sendto(b"m" * size, sock.getsockname())
            arrived = len(sock.recv(65_536))
    except OSError as error:
        return CheckResult(
            "sockets", CheckVerdict.FAIL, f"UDP at {bind}: {error.strerror or error}", _socket_remedy(error)
        )
    if arrived != size:
        return CheckResult("sockets", CheckVerdict.FAIL, f"a datagram of {size} bytes came back as {arrived}")
    return CheckResult("sockets", CheckVerdict.OK, f"a datagram of {size:,} bytes came back at {bind.host}")


def _socket_remedy(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "a firewall drops it: allow UDP between the members, and from this machine to itself"
    if error.errno == errno.EMSGSIZE:
        return "set frame_bytes lower, for example 8KiB; on macOS also: sudo sysctl -w net.inet.udp.maxdgram=65535"
    return "name an address of this machine, and a port that is free; `ip address` and `ss -lun` list them"


def check_buffers(examination: Examination) -> CheckResult:
    wanted = examination.config.socket_buffer_bytes
    with _udp(Endpoint("127.0.0.1", 0)) as sock:
        got = min(_grown(sock, option, wanted) for option in (socket.SO_RCVBUF, socket.SO_SNDBUF))
    if got >= wanted:
        return CheckResult("UDP buffers", CheckVerdict.OK, f"{_mebibytes(got)}, as much as is wanted")
    return CheckResult(
        "UDP buffers",
        CheckVerdict.WARN,
        f"the system grants {_mebibytes(got)} of {_mebibytes(wanted)}: bursts will be lost and sent again",
        _buffer_remedy(wanted),
    )


def _grown(sock: socket.socket, option: int, wanted: int) -> int:
    """As a member does it: what the system allows, and if we are root on Linux also more."""
    for choice in (option, FORCED.get(option)) if sys.platform == "linux" else (option,):
        if choice is not None and sock.getsockopt(socket.SOL_SOCKET, option) < wanted:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, choice, wanted)
    return sock.getsockopt(socket.SOL_SOCKET, option)


def _buffer_remedy(wanted: int) -> str:
    if sys.platform == "darwin":
        return f"sudo sysctl -w kern.ipc.maxsockbuf={2 * wanted}"
    line = f"net.core.rmem_max={wanted} net.core.wmem_max={wanted}"
    return f"as root: sysctl -w {line}; to keep it, put both into /etc/sysctl.d/60-motet.conf"


def check_multicast(examination: Examination) -> CheckResult:
    """Over the interface that a member would use; not needed, because unicast is the default."""
    group = examination.config.multicast_group
    try:
        _receive_own_multicast(group, examination.bind.host)
    except OSError as error:
        return CheckResult(
            "IP multicast",
            CheckVerdict.NOTE,
            f"does not come back to us ({error.strerror or error}); it is an option, unicast is the default",
            "for transport = multicast: ip link set lo multicast on; ip route add 224.0.0.0/4 dev lo "
            "(or the network's own interface); clouds and containers often have none",
        )
    return CheckResult("IP multicast", CheckVerdict.OK, f"a datagram to {group} was looped back")


def _receive_own_multicast(group: str, host: str) -> None:
    interface = socket.inet_aton(host if host not in ("", "0.0.0.0", "localhost") else "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.bind(("", 0))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + interface)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)  # must not leave this machine
        sock.sendto(b"motet doctor", (group, sock.getsockname()[1]))
        sock.recv(100)


def _udp(bind: Endpoint) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


# The journal


def check_journal(examination: Examination) -> CheckResult:
    if examination.journal is None:
        text = "no directory given: a member without a journal loses its log when it stops; --journal DIR checks one"
        return CheckResult("journal", CheckVerdict.NOTE, text)
    directory = Path(examination.journal)
    try:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)  # as the journal would make it
        synced_s = _time_of_sync(directory)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return CheckResult(
            "journal",
            CheckVerdict.FAIL,
            f"{directory}: {error.strerror or error}",
            "name a directory on a real file system that this user may write to",
        )
    return _evaluate_disk(directory, synced_s, free)


def _time_of_sync(directory: Path) -> float:
    """The median of a few: what each `fsync = always` append would wait for."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".doctor-") as file:
        for _ in range(5):
            file.write(b"m" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _evaluate_disk(directory: Path, synced_s: float, free: int) -> CheckResult:
    said = f"{directory} can be written; fsync takes {synced_s * 1000:.1f} ms, {free / 1e9:.1f} GB are free"
    if free < LITTLE_SPACE:
        return CheckResult(
            "journal",
            CheckVerdict.WARN,
            said,
            "free some space, or set retention_bytes so that old segments are deleted",
        )
    if synced_s > SLOW_SYNC_S:
        return CheckResult(
            "journal", CheckVerdict.WARN, said, "a slow disk: journal_fsync = interval waits for it less often"
        )
    return CheckResult("journal", CheckVerdict.OK, said)


# The pipeline


def check_spark(examination: Examination) -> CheckResult:
    if find_spec("pyspark") is None:
        return CheckResult(
            "Spark", CheckVerdict.NOTE, "no PySpark; only the pipeline needs it", "pip install 'motet[spark]'"
        )
    from importlib.metadata import version

    return CheckResult("Spark", CheckVerdict.OK, f"PySpark {version('pyspark')}")


def check_java(examination: Examination) -> CheckResult:
    from motet.spark.java import find_java

    try:
        return CheckResult("Java", CheckVerdict.OK, str(find_java()))
    except MotetError as error:
        text, _, remedy = str(error).partition(" What to do: ")
        return CheckResult("Java", CheckVerdict.NOTE, f"{text} Only the pipeline needs it.", remedy)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", check_python),
    ("event loop", check_loop),
    ("sockets", check_sockets),
    ("UDP buffers", check_buffers),
    ("IP multicast", check_multicast),
    ("open files", check_files),
    ("clock", check_clock),
    ("journal", check_journal),
    ("Spark", check_spark),
    ("Java", check_java),
)
