"""`python -m motet` is the `motet` command."""

from motet.cli.app import main

main()
