"""The admin port of a member: overview, health, metrics, dashboard and a few operations, over HTTP."""
