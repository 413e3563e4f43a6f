"""What must hold of every history, whatever broke. Checkers read histories and know no machine."""
