"""The durable log: the journal on disk, and the service that other processes read it from."""
