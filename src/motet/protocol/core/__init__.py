"""Identities, effects, the machine contract, time units. Everything else stands on this room; it stands on nothing."""
