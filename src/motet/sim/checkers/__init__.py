"""The properties that every history must have, whatever failed. Checkers read histories only, never protocol state."""
