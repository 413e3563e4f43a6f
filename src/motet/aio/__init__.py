"""Members as real processes: the UDP driver, and what it plugs in."""
