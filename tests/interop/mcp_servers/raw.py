"""An MCP server over stdio, in plain Python, that does what a test tells it to, good or bad. Run as a child process.

Its one argument is a JSON file, see `lab.Lab`. It logs its start and each message, one line of JSON each.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())


def log(what: str, **more: Any) -> None:
    with Path(CONFIG["log"]).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "what": what, **more}) + "\n")


def times(what: str, **more: Any) -> int:
    """How often the log, also that of processes before this one, has such a line."""
    lines = [json.loads(line) for line in Path(CONFIG["log"]).read_text().splitlines()]
    return sum(line["what"] == what and all(line.get(k) == v for k, v in more.items()) for line in lines)


def tell(text: str) -> None:
    """Wakes a test that waits at the FIFO."""
    Path(CONFIG["fifo"]).write_text(text)


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def die_if_told(where: str) -> None:
    if times("die", where=where) < CONFIG.get("die", {}).get(where, 0):
        log("die", where=where)
        os._exit(1)


def page(key: str, params: dict[str, Any]) -> dict[str, Any]:
    items = CONFIG.get(key, [])
    size = CONFIG.get("page_size") or len(items) or 1
    at = int(params.get("cursor") or 0)
    die_if_told(f"{key} page {at // size}")
    found: dict[str, Any] = {key: items[at : at + size]}
    if CONFIG.get("circle"):
        found["nextCursor"] = "1"
    elif at + size < len(items):
        found["nextCursor"] = str(at + size)
    return found


def call(id: Any, params: dict[str, Any]) -> None:
    name, args = params["name"], params.get("arguments") or {}
    die_if_told(name)
    if name == "hang":
        if "fifo" in CONFIG:
            tell("called")
        return
    if name == "echo":
        result: Any = {"content": [{"type": "text", "text": args.get("text", "")}]}
    elif name == "pid":
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    elif name == "environment":
        result = {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    elif name in CONFIG.get("results", {}):
        result = CONFIG["results"][name]
    else:
        send(id=id, error={"code": -32602, "message": f"no tool {name}"})
        return
    send(id=id, result=result)


def answer(message: dict[str, Any]) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    log(str(method), name=params.get("name"))
    if method == "notifications/cancelled" and "fifo" in CONFIG:
        tell("cancelled")
    if id is None or method is None:
        return
    if method == "initialize":
        if CONFIG.get("mute"):
            if "fifo" in CONFIG:
                tell("mute")
            return
        send(
            id=id,
            result={
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            },
        )
    elif method == "ping":
        send(id=id, result={})
    elif method in ("tools/list", "resources/list", "prompts/list"):
        send(id=id, result=page(method.partition("/")[0], params))
    elif method == "tools/call":
        call(id, params)
    elif method == "resources/read" and params["uri"] in CONFIG.get("contents", {}):
        send(id=id, result={"contents": CONFIG["contents"][params["uri"]]})
    elif method == "prompts/get" and params["name"] in CONFIG.get("messages", {}):
        text = CONFIG["messages"][params["name"]].format(**params.get("arguments", {}))
        send(id=id, result={"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    else:
        send(id=id, error={"code": -32602, "message": f"{method}: not known here"})


def main() -> None:
    log("start")
    for line in CONFIG.get("garbage", []):
        print(line, flush=True)
    if CONFIG.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        answer(json.loads(line))
    if CONFIG.get("deaf"):
        while True:
            signal.pause()


main()
