"""Spark jobs over the journals of members: the audit, the pipeline, campaigns of simulations, and their reports."""
