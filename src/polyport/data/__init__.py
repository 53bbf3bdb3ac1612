"""Floor 1: the data that travels through Polyport, as Structs. Nothing here awaits or does I/O."""
