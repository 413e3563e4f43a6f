"""What a member offers to the outside: its log over Arrow Flight."""
