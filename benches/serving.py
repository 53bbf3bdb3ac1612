"""How every server of the benchmark is served: uvicorn, uvloop, httptools, no access log, on a socket that it inherits.

Used by `adk_server.py`, `our_server.py` and `ceiling.py`, each in its own process and environment. The socket listens before
the process starts, so that a cold start is measured without polling.
"""

import argparse
import socket
from typing import Any

import uvicorn


def arguments() -> argparse.Namespace:
    """`--fd N` (the listening socket), `--sqlite FILE` (absent: sessions in memory), `--a2a` (serve A2A beside REST) and
    `--window N` (Polyport only: how many of the newest events go into prompts)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--sqlite", default="")
    parser.add_argument("--a2a", action="store_true")
    parser.add_argument("--window", type=int)
    return parser.parse_args()


def serve(app: Any, fd: int, http: Any = "httptools") -> None:
    """Serve until the process is told to end; `http` is the class of the protocol, uvicorn's own without one."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=http,
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        backlog=4096,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])
