"""A seeded virtual world: the very same `Member` as in production, on a virtual clock and a virtual network.

One seed draws everything: members, network, faults, workload. A run is a safety phase under faults, then a liveness
phase in which all is healed and everything accepted must arrive. The same seed gives the same run, to the byte.
"""
