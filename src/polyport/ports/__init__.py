"""Floor 2: the interfaces between Polyport's parts. Types that name each other share a file; nothing here does I/O."""
