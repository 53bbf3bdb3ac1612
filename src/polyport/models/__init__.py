"""Floor 4: models. Each is the I/O around a wire module; the registry finds one by a string."""
