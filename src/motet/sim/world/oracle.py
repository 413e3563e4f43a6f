"""An oracle that replaces membership in worlds that test only the channels.

It installs each view at one member after the other, at different moments. A joiner receives the digest of all streams
only after every sender has installed a view with the joiner, so that no frame is purged before the joiner has it. The
oracle knows who crashed without detecting it, and it does not flush.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.sim.world.history import History
from motet.sim.world.host import Host
from motet.sim.world.scheduler import Scheduler


class Oracle:
    def __init__(self, scheduler: Scheduler, rng: Random, history: History, hosts: Callable[[], list[Host]]) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._history = history
        self._hosts = hosts  # all processes that are alive
        self._members: list[Address] = []
        self._is_busy = False
        self._is_asked_again = False

    def start(self) -> None:
        """Install the first view at all members at the same moment."""
        hosts = self._hosts()
        self._members = [host.address for host in hosts]
        for host in hosts:
            self._install(host, dict.fromkeys(self._members, 0))

    @property
    def is_settled(self) -> bool:
        return not self._is_busy and sorted(self._members) == sorted(host.address for host in self._hosts())

    def change(self) -> None:
        """A process crashed or started: install a view of the processes that are alive. One change runs at a time."""
        if self._is_busy:
            self._is_asked_again = True
            return
        self._is_busy = True
        veterans = [host for host in self._hosts() if host.address in self._members]
        joiners = [host for host in self._hosts() if host.address not in self._members]
        self._members = [host.address for host in veterans + joiners]
        digest: dict[Address, int] = {joiner.address: 0 for joiner in joiners}
        self._next_veteran(veterans, joiners, digest)

    def _next_veteran(self, veterans: list[Host], joiners: list[Host], digest: dict[Address, int]) -> None:
        if not veterans:
            self._scheduler.after(self._pause(), lambda: self._admit(joiners, digest))
            return
        self._scheduler.after(self._pause(), lambda: self._visit(veterans, joiners, digest))

    def _visit(self, veterans: list[Host], joiners: list[Host], digest: dict[Address, int]) -> None:
        host = veterans[0]
        if host.is_paused:
            self._next_veteran(veterans, joiners, digest)  # retried after a short delay
            return
        if host.is_alive:
            digest[host.address] = host.member.multicast.sender.window.high
            # Veterans already follow these streams, and nothing was flushed that would let them skip messages. So their
            # digest has no entries for the streams of other veterans.
            ours = {host.address: digest[host.address]}
            self._install(host, ours | {joiner.address: 0 for joiner in joiners})
        self._next_veteran(veterans[1:], joiners, digest)

    def _admit(self, joiners: list[Host], digest: dict[Address, int]) -> None:
        alive = [host for host in joiners if host.is_alive]
        if any(host.is_paused for host in alive):
            self._scheduler.after(self._pause(), lambda: self._admit(joiners, digest))
            return
        self._members = [member for member in self._members if member in digest]
        for host in alive:
            self._install(host, digest)
        self._is_busy = False
        if self._is_asked_again:
            self._is_asked_again = False
            self.change()

    def _install(self, host: Host, digest: dict[Address, int]) -> None:
        """Install the view at one member. From here on its stream is owed to every member that the view adds."""
        view = [m for m in self._members if m in digest or m in host.member.members]
        gone = [m for m in host.member.members if m not in view]
        for address in gone:
            self._history.count_out(host.address, address)
        for address in view:
            self._history.count_in(host.address, address)
        host.note(f"installs {', '.join(map(str, view))}")
        host.do(lambda now: host.member.install_view(view, digest, now))
        for address in gone:
            self._scheduler.after(self._rng.randrange(SECOND), partial(self._forget, host, address))

    def _forget(self, host: Host, address: Address) -> None:
        if host.is_paused:
            self._scheduler.after(self._pause(), partial(self._forget, host, address))
        else:
            host.do(partial(host.member.forget, address))

    def _pause(self) -> int:
        return self._rng.randrange(1, 40 * MILLISECOND)
