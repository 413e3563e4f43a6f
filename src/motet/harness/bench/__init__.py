"""`motet bench`: measures real members in separate processes on this machine, beside other systems."""
