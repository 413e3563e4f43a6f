"""What happens in a simulated world: each scenario draws a plan from a seed, plays it, and has it checked."""
