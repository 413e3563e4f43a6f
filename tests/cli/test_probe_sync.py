"""`motet probe HOST:PORT sync MEMBER` against real nodes: it answers when SYNC-ACK was sent, or says why it was not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from motet.admin.client import AdminClient, parse_endpoint
from motet.log.service.validated_json import integer
from tests.cli.nodes import TIMEOUT_S, NodeProcess

TOKEN = "a-token-of-the-tests"
NOBODY_IS_SUSPECTED = ("suspect=1min", "view_answer=1min")


@contextmanager
def two_nodes(*settings: str) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """Nodes a and b, which have a unicast window for one another: a snapshot sends markers both ways."""
    given = [word for setting in (f"token={TOKEN}", *settings) for word in ("--set", setting)]
    common = ("--group", "chat", "--admin", "127.0.0.1:0", *given)
    with NodeProcess(*common, "--name", "a") as a, NodeProcess(*common, "--name", "b", "--seeds", a.endpoint) as b:
        for node in (a, b):
            node.expect(lambda line: line.startswith("view ") and line.endswith((" primary a b", " primary b a")))
        assert probe(a, "snapshot").returncode == 0
        yield a, b


def started(node: NodeProcess, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "motet", "probe", node.admin, *arguments, "--token", TOKEN]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, errors = process.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, " ".join(errors.split()))


def probe(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ended(started(node, *arguments))


def sent(client: AdminClient) -> int:
    return integer(client.stats(), "counters", "sync_sent")


def until_resent(node: NodeProcess) -> None:
    """SYNC was sent, and again because nobody answered."""
    client = AdminClient(parse_endpoint(node.admin), TOKEN)
    deadline = time.monotonic() + TIMEOUT_S
    while sent(client) < 2:
        assert time.monotonic() < deadline, "SYNC was never resent"
        time.sleep(0.02)


def test_it_is_done_when_sync_ack_was_sent() -> None:
    with two_nodes(*NOBODY_IS_SUSPECTED, "sync_timeout=50s") as (a, _):
        answer = probe(a, "sync", "b")
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.startswith("done: sync b\n  synced: b#")
        assert json.loads(probe(a, "sync", "b", "--json").stdout)["synced"].startswith("b#")


def test_while_sync_is_lost_it_does_not_answer_and_then_it_does() -> None:
    with two_nodes(*NOBODY_IS_SUSPECTED, "sync_timeout=50s") as (a, _):
        assert probe(a, "fault", "cut@b:out").returncode == 0
        waiting = started(a, "sync", "b")
        until_resent(a)
        assert waiting.poll() is None, "SYNC was sent, and that is not enough"
        assert probe(a, "fault", "clear").returncode == 0
        answer = ended(waiting)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert "synced: b#" in answer.stdout


def test_a_peer_that_is_cut_off_is_a_timeout_in_words_and_exit_code_6() -> None:
    with two_nodes(*NOBODY_IS_SUSPECTED, "sync_timeout=300ms") as (a, _):
        assert probe(a, "fault", "cut@b").returncode == 0
        answer = probe(a, "sync", "b")
        assert (answer.returncode, answer.stdout) == (6, "")
        assert "did not answer SYNC within 300.0 ms; check that it is up and reachable, then try again" in answer.stderr


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("nobody", "'nobody' is no member of the view; there are: "),
        ("a", " is this member itself, and it has sent itself nothing by unicast; "),
    ],
)
def test_whom_it_cannot_be_done_with(member: str, said: str) -> None:
    with two_nodes() as (a, _):
        answer = probe(a, "sync", member)
        assert (answer.returncode, answer.stdout) == (6, "")
        assert said in answer.stderr
