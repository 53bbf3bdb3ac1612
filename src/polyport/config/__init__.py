"""Floor 8: from words and files on disk to agents."""
