"""Identities, effects, the machine contract, time units. Every other package may import this one; it imports none."""
