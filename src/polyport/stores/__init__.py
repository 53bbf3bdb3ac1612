"""Where sessions, artifacts and memory are kept: in memory, in one SQLite file, in a folder.

Each class implements a port of `polyport.ports.stores` and passes the suites of `polyport.testing.suites`. `open.py`
turns a URL into stores. Nothing here knows a run, an agent or a protocol.
"""
