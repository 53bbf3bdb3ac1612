"""Debugging an app: traces of its runs and pictures of its agents. Off unless asked for: `App(protocols=["rest", Debug()])`."""
