"""McpToolset against servers that others wrote: time and git (Python), and "everything" (JavaScript)."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent
from polyport.testing import ScriptedModel, call
from polyport.tools.mcp import HttpServer, McpLimits, McpToolset, StdioServer

ROOT = Path(__file__).resolve().parents[2]
NODE_HOME = ROOT / ".bench" / "mcp"
EVERYTHING = "@modelcontextprotocol/server-everything"


async def run(toolset: McpToolset, *steps: Any) -> tuple[list[Any], ScriptedModel]:
    """The responses of all calls of a run."""
    model = ScriptedModel(*steps, "done")
    reply = await App(LlmAgent(name="app", model=model, tools=[toolset])).ask("go")
    model.check()
    return [r.response for e in reply.events for r in e.responses], model


async def test_the_time_server_of_pypi():
    toolset = McpToolset(StdioServer(sys.executable, ["-m", "mcp_server_time", "--local-timezone=UTC"]))
    convert = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    async with toolset.running():
        responses, model = await run(
            toolset, [call("convert_time", convert), call("get_current_time", {"timezone": "Nowhere/None"})]
        )
    tools = {t.name: t for t in model.requests[0].tools}
    assert set(tools) == {"get_current_time", "convert_time"}
    returns = tools["convert_time"].response
    assert returns is not None and returns["properties"]["source"]["properties"]["timezone"] == {"type": "string"}
    assert responses[0]["output"]["time_difference"] == "+9.0h" and set(responses[0]) == {"output"}
    assert "Nowhere/None" in responses[1]["error"]


def git(folder: Path, *words: str) -> None:
    own = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    names = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *names, *words], cwd=folder, env=own, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_the_git_server_of_pypi(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n")
    git(tmp_path, "init")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-m", "the first commit")
    (tmp_path / "a.txt").write_text("two\n")
    server = StdioServer(
        sys.executable, ["-m", "mcp_server_git", "--repository", str(tmp_path)], {"HOME": str(tmp_path)}
    )
    toolset = McpToolset(server, only=lambda ctx, info: bool(info.read_only), prefix="repo")
    where = {"repo_path": str(tmp_path)}
    async with toolset.running():
        log, model = await run(toolset, call("repo_git_log", where), call("repo_git_diff_unstaged", where))
        refused, _ = await run(toolset, call("repo_git_status", {"repo_path": "/etc"}))
    names = {t.name for t in model.requests[0].tools}
    assert "repo_git_status" in names and "repo_git_commit" not in names and "repo_git_reset" not in names
    assert "the first commit" in log[0]["output"]
    assert "-one" in log[1]["output"] and "+two" in log[1]["output"]
    assert "error" in refused[0]


@pytest.fixture(scope="module")
def everything() -> Path:
    """The server's script, installed once."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    home = NODE_HOME / "node_modules" / EVERYTHING
    if not home.exists():
        NODE_HOME.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(NODE_HOME), EVERYTHING]
        subprocess.run(words, check=True, cwd=NODE_HOME)
    return home / "dist" / "index.js"


async def tour(toolset: McpToolset) -> None:
    """What the everything server has, used by an agent."""
    async with toolset.running():
        responses, model = await run(
            toolset,
            [
                call("echo", {"message": "hi"}, "c0"),
                call("get-sum", {"a": 2, "b": 3}, "c1"),
                call("get-sum", {"a": "two"}, "c2"),
                call("get-structured-content", {"location": "New York"}, "c3"),
                call("get-tiny-image", {}, "c4"),
                call("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}, "c5"),
                call("get-resource-links", {"count": 2}, "c6"),
            ],
        )
        echo, total, wrong, structured, image, blob, links = responses
        assert echo == {"output": "Echo: hi"} and "5" in total["output"]
        assert "error" in wrong
        assert set(structured) == {"output"} and set(structured["output"]) == {"temperature", "conditions", "humidity"}
        assert image["artifacts"] == ["get-tiny-image-c4-1.png"] and "base64" not in str(image)
        assert blob["artifacts"] and links["output"].count("[resource ") == 2
        shown = [p.inline_data for c in model.requests[1].contents for p in c.parts if p.inline_data is not None]
        assert [b.mime_type for b in shown] == ["image/png"]
        resources = await toolset.resources()
        texts = await toolset.read_resource(resources[0].uri)
        assert texts[0].text
        assert "args-prompt" in {p.name for p in await toolset.prompts()}
        [message, *_] = await toolset.get_prompt("args-prompt", {"city": "Paris"})
        assert "Paris" in message.text
        responses, _ = await run(toolset, call("trigger-long-running-operation", {"duration": 30, "steps": 2}))
        assert "took longer than 1 s" in responses[0]["error"]
        responses, _ = await run(toolset, call("echo", {"message": "still there"}))
        assert responses == [{"output": "Echo: still there"}]


LIMITS = McpLimits(call_timeout_s=1.0)


@pytest.mark.long
async def test_the_everything_server_of_npm_over_stdio(everything: Path):
    await tour(McpToolset(StdioServer("node", [str(everything), "stdio"]), use_resources=True, limits=LIMITS))


@asynccontextmanager
async def listening_node(script: Path) -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["node", str(script), "streamableHttp"]
    async with await anyio.open_process(
        words, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL
    ) as node:
        assert node.stderr is not None
        seen = b""
        with anyio.fail_after(60):
            while b"listening" not in seen:
                seen += await node.stderr.receive()
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            node.kill()


@pytest.mark.long
async def test_the_everything_server_of_npm_over_http(everything: Path):
    async with listening_node(everything) as url:
        await tour(McpToolset(HttpServer(url), use_resources=True, limits=LIMITS))
