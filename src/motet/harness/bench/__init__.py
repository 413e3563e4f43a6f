"""`motet bench`: real members as separate processes on this machine, measured, beside what others reach."""
