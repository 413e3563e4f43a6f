"""Members as real processes: UDP sockets, a thread of their own, and the public `Group`."""
