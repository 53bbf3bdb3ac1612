"""Log lines of the server: text for people, or one JSON object per line for machines."""

import logging
import sys
import time
from typing import Any

from polyport.codec import encode


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message", "error"?}`; time is RFC 3339 UTC with milliseconds. A request has its parts
    besides: `method`, `path`, `status`, `ms`, `request`, and `run` if it ran an agent."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name == "polyport.access" and isinstance(record.args, tuple):
            line |= _request(*record.args)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return encode(line).decode()


def _request(method: Any, path: Any, status: Any, ms: Any, request: Any, run: Any) -> dict[str, Any]:
    """What the host writes of a request, in the order of its format."""
    parts = {"method": method, "path": path, "status": status, "ms": round(ms, 1), "request": request}
    return {**parts, "run": run.removeprefix(" run=")} if run else parts


class Noise(logging.Filter):
    """Drops what uvicorn says of clients that offer an upgrade (to HTTP/2, say): they are served without it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "Unsupported upgrade request."


def configure(log_format: str, level: str) -> None:
    """Send all logs to standard error in this format. Idempotent."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.setLevel(max(logging.WARNING, root.level))
    uvicorn.filters[:] = [Noise()]
