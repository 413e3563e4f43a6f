"""The `motet` command."""
