"""Runs of real members on this machine: `motet run` and `motet suite` start them, watch them and judge what they saw."""
