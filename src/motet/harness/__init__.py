"""Groups of real processes on one machine, started and watched: the demo, `motet run`, `motet suite`, `motet bench`."""
