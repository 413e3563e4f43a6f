"""The simulated world: virtual time, network and disk, and the processes that live there."""
