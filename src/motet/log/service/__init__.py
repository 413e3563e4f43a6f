"""What a member serves to the outside: its log over Arrow Flight, and its admin interface over HTTP."""
