"""The whole story on one machine: what `motet demo` shows. Nothing else imports this room but the command line."""
