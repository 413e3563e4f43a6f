"""`motet demo`: a scripted demonstration on one machine. Only the command line imports this package."""
