"""Runs of real members on this machine: `motet run` and `motet suite` start, watch and judge them."""
