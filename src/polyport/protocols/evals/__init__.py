"""Evaluation over HTTP, for the ADK web page and for tools: eval sets and results, tests, the YAML editor (spec rest 10.1).

Only the edge: what is evaluated, and the files, are in `polyport.evals`, one floor below. Served when the app is given
`protocols.evals.mount.Evals(...)`.
"""
