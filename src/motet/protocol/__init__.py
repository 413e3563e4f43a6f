"""The protocols, sans-IO: no clock, no socket, no thread. The runtime, the simulator and the tests run the same classes."""
