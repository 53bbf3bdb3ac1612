"""Numbers for Prometheus at `/metrics`. Off unless asked for: `App(protocols=["rest", Metrics()])`."""
