"""The A2A protocol, served: `A2aHandler` carries out its operations, free of any transport (spec a2a 1 and 3)."""
