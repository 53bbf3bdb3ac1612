"""Evaluation: cases with the words of a user and what is expected of the agent, played against an app and scored.

On the floor above `runs` and below the protocols: it drives runs as a protocol does, but has no wire. Used by
`polyport eval`, by `polyport.testing.evaluate` and by `protocols/evals`. Reads and writes the files of ADK's evaluation.
Never touches the sessions of an app: cases are played on stores of their own.
"""
