"""Agents served as an MCP server, asked by the official SDK's client, over loopback and over stdio."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

from interop.mcp_servers.lab import listening
from polyport import Agent, App, Content, LlmAgent, Part, SessionKey, Tool, ToolContext
from polyport.data.auth import Caller
from polyport.data.content import Blob
from polyport.data.model import ToolDeclaration
from polyport.protocols.guard import Guard
from polyport.protocols.host import Host
from polyport.protocols.http import Request
from polyport.protocols.mcp import make_server
from polyport.testing import ScriptedModel, call, chunks
from polyport.testing.connect import connect
from polyport.tools.mcp import HttpServer, McpToolset


def llm(*steps: Any, name: str = "weather", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


def mounted(app: App, *, guard: Guard | None = None, stateless: bool = False) -> Host:
    """The app's MCP server as an ASGI app of its own."""
    server = make_server(app.runs, app.limits, stateless=stateless)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with app.running(), server.running():
            yield

    return Host(server.routes(), lifespan=lifespan, guard=guard or Guard.open())


@asynccontextmanager
async def asked(app: App, mode: str = "legacy", **options: Any) -> AsyncIterator[ClientSession]:
    """The official client's session with the app's MCP server."""
    async with listening(mounted(app, **options)) as url, Client(f"{url}/mcp", mode=mode) as client:
        yield client.session


def said(result: types.CallToolResult) -> list[Any]:
    return [block.text if isinstance(block, types.TextContent) else block for block in result.content]


MODES = ["legacy", "2026-07-28"]


@pytest.mark.parametrize("mode", MODES)
async def test_each_app_is_a_tool(mode: str):
    app = App([llm("18 degrees", description="Knows the weather."), llm(name="news")])
    async with asked(app, mode) as session:
        tools = (await session.list_tools()).tools
        assert [(t.name, t.description) for t in tools] == [
            ("news", "Asks the agent news."),
            ("weather", "Knows the weather."),
        ]
        assert tools[0].input_schema["required"] == ["request"]
        result = await session.call_tool("weather", {"request": "Paris?"})
    assert not result.is_error and said(result) == ["18 degrees"]
    assert result.structured_content == {
        "text": "18 degrees",
        "session_id": result.structured_content["session_id"],
        "status": "finished",
    }


@pytest.mark.parametrize("mode", MODES)
async def test_a_conversation_goes_on_with_its_session_id(mode: str):
    model = ScriptedModel("one", "two", "three")
    app = App(LlmAgent(name="a", model=model))
    async with asked(app, mode) as session:
        first = await session.call_tool("a", {"request": "first"})
        id = first.structured_content["session_id"]
        second = await session.call_tool("a", {"request": "second", "session_id": id})
        await session.call_tool("a", {"request": "third"})
        assert second.structured_content["session_id"] == id
        assert model.prompt(1) == ["user: first", "model: one", "user: second"]
        assert model.prompt(2) == ["user: third"]
        stored = await app.stores.sessions.get(SessionKey("a", "mcp", id))
        assert [e.text for e in stored.events] == ["first", "one", "second", "two"]


@pytest.mark.parametrize("mode", MODES)
async def test_progress_tells_calls_and_pieces_of_text(mode: str):
    def look(city: str) -> str:
        """Look."""
        return "sunny"

    app = App(llm([call("look", {"city": "Paris"})], chunks("It is ", "sunny."), "quiet", tools=[look]))
    seen: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message))

    async with asked(app, mode) as session:
        result = await session.call_tool("weather", {"request": "Paris?"}, progress_callback=progress)
        assert said(result) == ["It is sunny."]
        await session.call_tool("weather", {"request": "again"})
    assert seen == [(1, "calls look"), (2, "It is "), (3, "sunny.")]


class Waiting(Tool):
    """Waits for ever, and knows when it was stopped."""

    name = "wait"

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.stopped = anyio.Event()

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name="wait")

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.set()


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_cancels_the_run(mode: str):
    tool = Waiting()
    app = App(llm(call("wait"), "still here", tools=[tool]))
    async with asked(app, mode) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call_tool, "weather", {"request": "wait"})
            await tool.begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await tool.stopped.wait()
        result = await session.call_tool("weather", {"request": "and now?"})
        assert said(result) == ["still here"]


async def test_what_goes_wrong_is_an_error_result():
    app = App(llm(ValueError("password is 1234"), "fine"))
    async with asked(app) as session:
        failed = await session.call_tool("weather", {"request": "x"})
        assert failed.is_error and "internal error (ValueError)" in said(failed)[0]
        for args, problem in (
            ({}, "request is missing"),
            ({"request": 3}, "request must be a string"),
            ({"request": "x", "session_id": 1}, "session_id must be a string"),
            ({"request": "x", "city": "Paris"}, "unknown arguments: city"),
        ):
            result = await session.call_tool("weather", args)
            assert result.is_error and problem in said(result)[0]
        with pytest.raises(MCPError, match="there is no tool 'nothing'; the tools are: weather"):
            await session.call_tool("nothing", {"request": "x"})
        assert said(await session.call_tool("weather", {"request": "x"})) == ["fine"]


async def test_images_of_the_answer_are_content():
    png, pdf = (Part(inline_data=Blob(mime_type=kind, data=b"data")) for kind in ("image/png", "application/pdf"))
    thought = Part(text="hm", thought=True)
    app = App(llm(Content(role="model", parts=[thought, Part(text="Look: "), png, Part(text="there."), pdf])))
    async with asked(app) as session:
        text, image, file = said(await session.call_tool("weather", {"request": "x"}))
    assert text == "Look: there."
    assert (image.type, image.mime_type, image.data) == ("image", "image/png", "ZGF0YQ==")
    assert (file.resource.mime_type, file.resource.blob) == ("application/pdf", "ZGF0YQ==")


async def test_a_run_that_waits_for_somebody_says_so():
    class Later(Waiting):
        long_running = True

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return None

    async with asked(App(llm(call("wait"), tools=[Later()]))) as session:
        result = await session.call_tool("weather", {"request": "x"})
    assert result.structured_content["status"] == "paused" and "waits for something" in said(result)[0]


class KeyGuard(Guard):
    """Knows callers by their key."""

    async def admit(self, request: Request) -> Caller:
        return Caller(request.header("x-key"))


@pytest.mark.parametrize("mode", MODES)
async def test_sessions_belong_to_the_caller_of_each_request(mode: str):
    model = ScriptedModel("for ann", "for bob")
    app = App(LlmAgent(name="a", model=model))

    async def ask(url: str, user: str, args: dict[str, Any]) -> str:
        async with (
            httpx2.AsyncClient(headers={"x-key": user}) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            return (await client.session.call_tool("a", args)).structured_content["session_id"]

    async with listening(mounted(app, guard=KeyGuard(["*"], ["*"]))) as url:
        id = await ask(url, "ann", {"request": "hi"})
        assert (await app.stores.sessions.get(SessionKey("a", "ann", id))).events
        assert await ask(url, "bob", {"request": "and me?", "session_id": id}) == id
        assert model.prompt(1) == ["user: and me?"]
        assert (await app.stores.sessions.get(SessionKey("a", "bob", id))).events


async def test_the_mcp_session_of_somebody_else_is_not_there():
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with connect(mounted(App(llm()), guard=KeyGuard(["*"], ["*"])), headers=accept) as client:
        opened = await client.post("/mcp", json=start, headers={"x-key": "ann"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for user, status in (("bob", 404), ("", 404), ("ann", 202)):
            named = {**session, "x-key": user}
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await client.post("/mcp", json=told, headers=named)).status == status, user
            if status == 404:
                assert (await client.get("/mcp", headers=named)).status == 404
                assert (await client.delete("/mcp", headers=named)).status == 404


async def test_the_guard_of_the_host_is_in_front():
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with connect(mounted(App(llm()), guard=Guard())) as client:
        for headers in ({"host": "evil.test"}, {"host": "localhost", "origin": "https://evil.test"}):
            assert (await client.post("/mcp", json=body, headers=headers)).status == 403
        assert (await client.request("PUT", "/mcp", json=body)).status == 405


async def test_without_its_lifespan_it_says_what_to_do():
    app = App(llm())
    host = Host(make_server(app.runs, app.limits).routes(), lifespan=app.running, guard=Guard.open())
    async with connect(host) as client:
        response = await client.post("/mcp", json={})
    assert response.status == 503 and "running()" in response.text


@pytest.mark.parametrize("stateless", [True, False])
async def test_the_session_id_is_left_out_for_several_workers(stateless: bool):
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}
    headers = {"accept": "application/json, text/event-stream"}
    async with connect(mounted(App(llm()), stateless=stateless)) as client:
        response = await client.post("/mcp", json=body, headers=headers)
        assert response.status == 200
        assert ("mcp-session-id" in response.headers) is not stateless


async def test_without_sessions_calls_work():
    async with asked(App(llm("a", "b")), stateless=True) as session:
        assert said(await session.call_tool("weather", {"request": "x"})) == ["a"]
        assert said(await session.call_tool("weather", {"request": "y"})) == ["b"]


async def test_polyport_asks_polyport():
    expert = llm("18 degrees", description="Knows the weather.")
    model = ScriptedModel(call("weather", {"request": "Paris?"}), "It is 18.")
    async with listening(mounted(App(expert))) as url:
        toolset = McpToolset(HttpServer(f"{url}/mcp"))
        asker: Agent = LlmAgent(name="asker", model=model, tools=[toolset])
        async with toolset.running(), App(asker) as app:
            reply = await app.ask("How warm is Paris?")
    assert reply.text == "It is 18."
    response = next(r.response for e in reply.events for r in e.responses)
    assert response is not None and response["output"]["text"] == "18 degrees"
    assert "text" not in response  # it is in the output already


SCRIPT = """
import anyio
from polyport import App, LlmAgent
from polyport.protocols.mcp import make_server
from polyport.testing import ScriptedModel

async def main():
    app = App(LlmAgent(name="a", model=ScriptedModel("hello", "again")))
    async with app:
        await make_server(app.runs, app.limits).serve_stdio()

anyio.run(main)
"""


@pytest.mark.parametrize("mode", MODES)
async def test_over_stdio(mode: str):
    server = StdioServerParameters(command=sys.executable, args=["-c", SCRIPT])
    async with Client(server, mode=mode) as client:
        assert said(await client.session.call_tool("a", {"request": "hi"})) == ["hello"]
        assert said(await client.session.call_tool("a", {"request": "hi"})) == ["again"]


async def test_an_app_serves_mcp_beside_rest_when_it_is_told_to():
    app = App(llm("hello", name="bot"), protocols=("rest", "mcp"))
    async with listening(app.asgi) as url, Client(f"{url}/mcp", mode="legacy") as client:
        assert [tool.name for tool in (await client.session.list_tools()).tools] == ["bot"]
        async with httpx2.AsyncClient() as rest:
            assert (await rest.get(f"{url}/list-apps")).json() == ["bot"]


def test_serving_mcp_from_several_workers_is_refused(tmp_path: Any):
    from click.testing import CliRunner

    from polyport.cli.main import main

    words = ["serve", "examples/weather", "--mcp", "--workers", "2", "--db", str(tmp_path / "x.db")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1 and "--workers 1" in done.output
