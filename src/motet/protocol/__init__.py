"""The protocols, sans-IO: no clock, socket or thread. Runtime, simulator and tests run the same classes."""
