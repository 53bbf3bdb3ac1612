"""Floor 4: kinds of agents."""
