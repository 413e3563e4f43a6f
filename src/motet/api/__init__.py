"""What applications use: `join`, `Group`, events, receipts, the blocking twin, and the building blocks."""
