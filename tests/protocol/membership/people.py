"""Who takes part in the tests of this package; the alphabet is the order of incarnations."""

from motet.protocol.core.identity import Address

A, B, C, D, E, F, G = (
    Address(name, "127.0.0.1", 7000 + number, number) for number, name in enumerate("ABCDEFG", start=1)
)
EVERYBODY = (A, B, C, D, E, F, G)
