"""Small building blocks on the ordered log: a dict, a lock, a counter and a state of one's own, the same everywhere."""

from motet.api.blocks.base import Machine, OrderedLog, Sent
from motet.api.blocks.counter import Counter, CounterMachine
from motet.api.blocks.dictionary import Change, DictMachine, ReplicatedDict
from motet.api.blocks.lock import Lock, LockMachine
from motet.api.blocks.state import ReplicatedState

__all__ = [
    "Change",
    "Counter",
    "CounterMachine",
    "DictMachine",
    "Lock",
    "LockMachine",
    "Machine",
    "OrderedLog",
    "ReplicatedDict",
    "ReplicatedState",
    "Sent",
]
