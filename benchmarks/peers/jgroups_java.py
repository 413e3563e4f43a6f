"""JGroups: each process starts one Java program, `JGroupsMember.java`, that is the member, and sends and counts itself.

A pipe to Python for each message would measure the pipe. So there is no `SystemUnderTest` here, but another worker: it
says the same to the parent, and makes the same `WorkerOutcome` of the few lines that the program prints.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.peers.field import jar, program
from benchmarks.peers.servers import free_port
from motet.errors import MotetError
from motet.harness.bench.job import Job, Sample, WorkerOutcome

PROGRAM = "JGroupsMember"
SOURCE = Path(__file__).with_name(f"{PROGRAM}.java")
GROUP = "239.77.7.7"  # with a time to live of 0 it does not leave the machine
COMPILE_TIMEOUT_S = 60.0


def work(job: Job, pipe: Connection) -> None:
    """The whole life of the process, in the words of `motet.harness.bench.worker`."""
    job = job if job.seeds else replace(job, seeds=(str(free_port()),))  # the group's port
    try:
        with _running(job) as member:
            _converse(job, member, pipe)
    except MotetError as error:
        pipe.send(error)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass


def _converse(job: Job, member: Member, pipe: Connection) -> None:
    member.hear("joined")
    pipe.send(job.seeds[0])
    pipe.recv()  # the members find each other
    member.hear("ready")
    pipe.send("ready")
    begin, end = pipe.recv()
    member.say(f"go {int(begin * 1e9)} {int(end * 1e9)}")
    outcome = WorkerOutcome(job.index)
    if job.kind == "rate":
        member.hear("sent", outcome)
        pipe.send(outcome.sent)
        member.say(f"expect {pipe.recv()}")
    member.hear("done", outcome)
    pipe.send(outcome)
    pipe.recv()


# The program


class Member:
    """The Java process, and what is said to it and heard from it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; whoever listens next is told why
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def hear(self, word: str, outcome: WorkerOutcome | None = None) -> None:
        """Lines go into the outcome until one begins with this word, which is the last that is taken."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if outcome is not None:
                enter(line, outcome)
            if line.split()[:1] == [word]:
                return
        raise MotetError(f"JGroups has ended before it said {word}: {self._log.read_text(errors='replace')[-500:]}")


def enter(line: str, outcome: WorkerOutcome) -> None:
    """One line of the program, as it is described at the head of its source."""
    word, *figures = line.split()
    match word, [int(figure) for figure in figures]:
        case "look", [at_ns, delivered, cpu_ns, rss_bytes]:
            outcome.samples.append(Sample(at_ns / 1e9, delivered, cpu_ns / 1e9, rss_bytes))
        case "sent", [count]:
            outcome.sent = count
        case "missing", [count]:
            outcome.missing = count
        case "times", times:
            outcome.latencies_ns += times


@contextlib.contextmanager
def _running(job: Job) -> Iterator[Member]:
    if job.index == 0:  # the others are started when this one has joined
        _compile(job.directory)
    log = Path(job.directory, f"jgroups-{job.index}.log")
    with log.open("wb") as errors:
        through = subprocess.PIPE
        process = subprocess.Popen(command(job), stdin=through, stdout=through, stderr=errors, text=True)
    try:
        yield Member(process, log)
    finally:
        process.kill()
        process.communicate()


def _compile(directory: str) -> None:
    """Once for all members: `java` on a source file would keep a compiler in the memory of each."""
    compiler, library = program("javac"), jar("jgroups")
    assert compiler is not None
    assert library is not None
    arguments = [compiler, "-cp", library, "-d", directory, str(SOURCE)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if done.returncode:
        raise MotetError(f"{SOURCE.name} cannot be compiled: {done.stderr[-500:]}")


def command(job: Job) -> list[str]:
    java, library, load = program("java"), jar("jgroups"), job.load
    assert java is not None
    assert library is not None
    return [
        java,
        "-Xmx1g",
        "-XX:+UseParallelGC",  # a fifth to a quarter faster here than the default: three JVMs share a few cores
        "-Djava.net.preferIPv4Stack=true",
        "-cp",
        os.pathsep.join((job.directory, library)),
        PROGRAM,
        stack(job),
        job.kind,
        str(load.members),
        str(load.sends(job.index)).lower(),
        str(load.size),
        load.order,
        str(load.rate),
        str(load.callers),
    ]


# The protocols


def stack(job: Job) -> str:
    """After the stacks that JGroups ships for UDP and SEQUENCER, with what its best figures here needed.

    UDP with IP multicast, since TCP was nowhere ahead twice: level for one sender of 100 B and in total order, behind
    for FIFO with 1000 B or where all send, for unicast and for calls. Total order is faster with a quarter of the
    credits that it ships with.
    """
    credits, stable = ("500K", "1M") if job.load.order == "total" else ("2M", "4M")
    protocols = [
        _transport(job),
        f"PING(timeout=1000;num_initial_members={job.load.members})",
        "FD_SOCK",
        "FD_ALL",
        "VERIFY_SUSPECT(timeout=1500)",
        "pbcast.NAKACK(use_mcast_xmit=true;gc_lag=0;retransmit_timeout=300,600,1200;discard_delivered_msgs=true)",
        "UNICAST(timeout=300,600,1200)",
        f"pbcast.STABLE(stability_delay=1000;desired_avg_gossip=50000;max_bytes={stable})",
        "pbcast.GMS(print_local_addr=false;join_timeout=3000;view_bundling=true)",
        *(["SEQUENCER"] if job.load.order == "total" else []),
        f"UFC(max_credits={credits};min_threshold=0.4)",
        f"MFC(max_credits={credits};min_threshold=0.4)",
        "FRAG2(frag_size=60000)",
    ]
    return ":".join(protocols)


def _transport(job: Job) -> str:
    """Messages are bundled where the rate counts; where a single one is timed, it does not wait for others."""
    is_bundling = str(job.kind == "rate" or job.load.callers > 1).lower()
    settings = {
        "bind_addr": "127.0.0.1",
        "mcast_addr": GROUP,
        "mcast_port": job.seeds[0],
        "ip_ttl": 0,
        "ucast_recv_buf_size": "20M",  # what JGroups asks for; the system may grant less
        "ucast_send_buf_size": "640K",
        "mcast_recv_buf_size": "25M",
        "mcast_send_buf_size": "640K",
        "loopback": "true",
        "max_bundle_size": 64_000,
        "max_bundle_timeout": 30 if job.kind == "rate" else 1,  # milliseconds; callers cannot go on meanwhile
        "enable_bundling": is_bundling,
        "enable_unicast_bundling": is_bundling,  # of what goes to the sequencer, too
        "enable_diagnostics": "false",
        "timer_type": "new",
        "thread_pool.min_threads": 2,
        "thread_pool.max_threads": 8,
        "thread_pool.queue_enabled": "true",  # without it bursts are dropped and sent again: a tenth of the rate
        "thread_pool.queue_max_size": 10_000,
        "thread_pool.rejection_policy": "discard",
        "oob_thread_pool.min_threads": 1,
        "oob_thread_pool.max_threads": 8,
        "oob_thread_pool.queue_enabled": "false",
        "oob_thread_pool.rejection_policy": "Run",
    }
    return f"UDP({';'.join(f'{name}={value}' for name, value in settings.items())})"
