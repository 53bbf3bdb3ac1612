"""The contract agent of the public A2A conformance kits: an ordinary agent, and hooks, steered by the ids of messages.

`python -m tests.conformance --port N` serves it, so that anybody can point a kit at it.
"""
