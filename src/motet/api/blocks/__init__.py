"""Small building blocks on the ordered log: a dict, a lock and a counter that are the same at every member."""

from motet.api.blocks.base import Machine, OrderedLog, Sent
from motet.api.blocks.counter import Counter, CounterMachine
from motet.api.blocks.dictionary import Change, DictMachine, ReplicatedDict
from motet.api.blocks.lock import Lock, LockMachine

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
    "Sent",
]
