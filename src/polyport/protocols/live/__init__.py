"""Live sessions over WebSocket: `GET /run_live` (spec rest 2.4).

`App(protocols=["rest", Live()])` serves it.
"""

from polyport.protocols.live.mount import Live

__all__ = ["Live"]
