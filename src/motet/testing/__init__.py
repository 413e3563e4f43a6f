"""For tests of applications: real groups on a simulated network, in virtual time, reproducible from a seed."""

from __future__ import annotations

from motet.sim.world.network import NetworkProfile
from motet.testing.clock import FakeClock, VirtualLoop
from motet.testing.network import SimNetwork
from motet.testing.runs import run, simulated

__all__ = ["FakeClock", "NetworkProfile", "SimNetwork", "VirtualLoop", "run", "simulated"]
