"""The simulator: the production `Member` on a virtual clock, a virtual network and a virtual disk.

One seed determines members, network, faults and workload. A run has a safety phase under faults and then a liveness
phase, in which all faults are healed and every accepted message must arrive. Equal seeds give equal runs, byte for
byte.
"""
