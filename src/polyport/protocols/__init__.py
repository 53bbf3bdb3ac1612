"""Floor 6: the edges. One sub-package or file per served protocol, peers that never import each other.

They share `host` (the ASGI app), `routes`, `http` (the request), `answers` (what goes back), `streaming` (server-sent events),
`guard` (who may call from where) and `parts` (what the App hands to a protocol). A protocol decodes, calls
`ports.runs.Runs` or a store, and encodes; it decides nothing about agents.
"""
