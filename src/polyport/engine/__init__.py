"""Floor 3: the runner and the turn loop. Knows ports only; never a provider, a protocol or a store."""
