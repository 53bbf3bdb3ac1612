"""McpToolset over streamable HTTP: one session for each set of headers, losses, credentials, cancelling (spec core 6.4)."""

import logging
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from interop.mcp_servers.lab import Lab
from interop.mcp_servers.web import web_mcp
from polyport import App, LlmAgent, ReadContext
from polyport.errors import LimitExceeded, Unavailable
from polyport.testing import ScriptedModel, call, connect
from polyport.tools.mcp import HttpServer, McpLimits, McpToolset
from support.talk import Talk


def agent(*steps: Any, tools: list[Any]) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=tools)


def results(reply: Any) -> list[Any]:
    return [r.response for e in reply.events for r in e.responses]


def token(ctx: ReadContext) -> dict[str, str]:
    return {"Authorization": f"Bearer {ctx.user_id}"}


async def test_FR_209_one_session_for_all_turns_and_a_goodbye():
    echo = call("echo", {"text": "x"})
    async with web_mcp() as server:
        toolset = McpToolset(server.url)
        async with toolset.running(), App(agent(*[[echo, echo], "ok"] * 3, tools=[toolset])) as app:
            for _ in range(3):
                reply = await app.ask("go", session="s")
                assert results(reply) == [{"output": "x"}] * 2
            assert server.counts["initialize"] == 1 and server.counts["tools/call"] == 6
            assert server.counts["DELETE"] == 0
        assert server.counts["DELETE"] == 1 and not server.sessions
        assert [h.get("mcp-session-id") for h in server.headers[1:]] == ["s1"] * (len(server.headers) - 1)


async def test_FR_209_each_user_has_one_session_with_the_users_credentials():
    async with web_mcp() as server:
        toolset = McpToolset(HttpServer(server.url, {"X-Team": "t"}, token))
        async with toolset.running(), App(agent(*[call("who"), "ok"] * 6, tools=[toolset])) as app:
            for user in ("ann", "bob") * 3:
                assert results(await app.ask("go", user=user)) == [{"output": f"Bearer {user}"}]
        assert server.counts["initialize"] == 2 and server.counts["DELETE"] == 2
        assert {h["x-team"] for h in server.headers} == {"t"}


async def test_FR_211_many_users_do_not_pile_up_sessions():
    async with web_mcp() as server:

        async def provider(ctx: ReadContext) -> dict[str, str]:
            return token(ctx)

        toolset = McpToolset(HttpServer(server.url, header_provider=provider), limits=McpLimits(sessions=5))
        async with toolset.running(), App(agent(*[call("who"), "ok"] * 50, tools=[toolset])) as app:
            for n in range(50):
                assert results(await app.ask("go", user=f"u{n}")) == [{"output": f"Bearer u{n}"}]
            assert len(server.sessions) == 5
        assert server.most_sessions == 5 and not server.sessions


async def test_FR_211_users_at_one_time_wait_for_a_free_session():
    async with web_mcp() as server:
        toolset = McpToolset(HttpServer(server.url, header_provider=token), limits=McpLimits(sessions=2))
        seen: list[Any] = []
        # every run asks for one call, whichever of the runs the model's answer goes to
        model = ScriptedModel(
            *[lambda request, on_partial: "ok" if request.contents[-1].responses else call("who")] * 40
        )
        async with toolset.running(), App(LlmAgent(name="app", model=model, tools=[toolset])) as app:

            async def ask(user: str) -> None:
                seen.extend(results(await app.ask("go", user=user)))

            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    tasks.start_soon(ask, f"u{n:02}")
        assert sorted(r["output"] for r in seen) == [f"Bearer u{n:02}" for n in range(20)]
        assert server.most_sessions == 2


async def test_FR_211_when_all_sessions_are_in_use_for_too_long_it_is_said():
    async with web_mcp() as server:
        limits = McpLimits(sessions=1, connect_timeout_s=1.5)
        toolset = McpToolset(HttpServer(server.url, header_provider=token), limits=limits)
        app = App(agent(call("hang"), tools=[toolset]))
        async with toolset.running(), app, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: app.ask("go", user="ann"))
            await server.called.wait()
            with pytest.raises(LimitExceeded, match=r"all 1 sessions .* are in use"):
                await app.ask("go", user="bob")
            tasks.cancel_scope.cancel()


async def test_FR_211_an_unused_session_is_closed_after_a_while():
    async with web_mcp() as server:
        toolset = McpToolset(server.url, limits=McpLimits(idle_timeout_s=0.05))
        async with toolset.running():
            for n in range(3):
                await toolset.ask(None, lambda session: session.tools(), "tools")
                assert server.counts["initialize"] == n + 1
                with anyio.fail_after(20):
                    await server.goodbye.wait()
                server.goodbye = anyio.Event()


async def test_core_115_a_session_forgotten_between_two_calls():
    async with web_mcp() as server:
        toolset = McpToolset(server.url)

        def forget(request: Any, on_partial: Any) -> Any:
            server.sessions.clear()
            return call("who")

        async with toolset.running(), App(agent(call("who"), forget, "ok", tools=[toolset])) as app:
            assert results(await app.ask("go")) == [{"output": ""}] * 2
        assert server.counts["initialize"] == 2


@pytest.mark.parametrize(("drops", "works"), [(1, True), (2, False)])
async def test_core_115_a_connection_that_breaks_in_a_call(drops: int, works: bool):
    async with web_mcp() as server:
        server.drops = drops
        toolset = McpToolset(server.url)
        async with toolset.running(), App(agent(call("drop"), call("who"), "ok", tools=[toolset])) as app:
            first, second = results(await app.ask("go"))
        assert first == {"output": ""} if works else "connection was lost" in first["error"]
        assert second == {"output": ""}


async def test_a_server_that_is_not_there():
    toolset = McpToolset("http://user:pw@127.0.0.1:9/mcp?key=secret")
    for inside in (True, False):
        with pytest.raises(Unavailable) as caught:
            if inside:
                async with toolset.running():
                    await toolset.resources()
            else:
                await toolset.resources()
        assert str(caught.value) == "the MCP server http://127.0.0.1:9/mcp cannot be reached (ConnectError)"


@pytest.mark.parametrize("status", [401, 500])
async def test_a_server_that_refuses_the_credentials(status: int):
    async with web_mcp() as server:
        server.status = status
        with pytest.raises(Unavailable, match=rf"refused the connection: .*\(HTTP {status}\)") as caught:
            await McpToolset(HttpServer(server.url, {"Authorization": "Bearer secret"})).resources()
        assert "secret" not in str(caught.value)


async def test_an_error_of_http_in_a_call_is_told_to_the_model():
    async with web_mcp() as server:
        toolset = McpToolset(server.url)

        def spoil(request: Any, on_partial: Any) -> Any:
            server.status = 503
            return call("who")

        async with toolset.running(), App(agent(spoil, "ok", tools=[toolset])) as app:
            [response] = results(await app.ask("go"))
        assert "HTTP 503" in response["error"] and "secret" not in response["error"]
        assert server.counts["tools/call"] == 1


class Signed(httpx2.Auth):
    """A stand-in for the SDK's OAuth provider: any `httpx2.Auth`."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["Authorization"] = "Bearer signed"
        yield request


async def test_core_115_auth_is_an_object_of_the_http_library():
    async with web_mcp() as server:
        toolset = McpToolset(HttpServer(server.url, auth=Signed()))
        async with toolset.running(), App(agent(call("who"), "ok", tools=[toolset])) as app:
            assert results(await app.ask("go")) == [{"output": "Bearer signed"}]


async def test_cancelling_a_run_cancels_the_call_over_http():
    async with web_mcp() as server:
        toolset = McpToolset(server.url)
        async with toolset.running(), App(agent(call("hang"), tools=[toolset])) as app:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(app.ask, "go")
                await server.called.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(20):
                await server.cancelled.wait()


async def test_FR_207_many_toolsets_many_runs_some_cancelled(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    async with web_mcp() as a, web_mcp() as b, web_mcp() as c:
        lab = Lab(tmp_path)
        web = [McpToolset(s.url, only=["echo", "hang"], prefix=f"s{n}") for n, s in enumerate((a, b, c))]
        toolsets = [*web, lab.toolset(only=["echo"])]
        names = ["s0_echo", "s1_echo", "s2_echo", "echo"]

        def step(request: Any, on_partial: Any) -> Any:
            if request.contents[-1].responses:
                return "ok"
            if request.contents[-1].text == "hang":
                return call("s0_hang")
            return [call(name, {"text": name}) for name in names]

        app = App(LlmAgent(name="app", model=ScriptedModel(*[step] * 40), tools=toolsets))
        stopped: list[str] = []

        async def ask(talk: Talk) -> None:
            await talk.create()
            events = await talk.sse("hi")
            found = [
                p["functionResponse"]["response"]
                for e in events
                for p in e["content"]["parts"]
                if "functionResponse" in p
            ]
            assert found == [{"output": name} for name in names]

        async def leave(talk: Talk) -> None:
            await talk.create()
            async with talk.client.stream("POST", "/run_sse", json=talk.body("hang")) as response:
                async for _ in response.events():
                    await a.called.wait()
                    stopped.append(talk.session)
                    break

        async with AsyncExitStack() as stack:
            for toolset in toolsets:
                await stack.enter_async_context(toolset.running())
            client = await stack.enter_async_context(connect(app))
            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    talk = Talk(client, "app", app, session=f"s{n}")
                    tasks.start_soon(leave if n % 4 == 3 else ask, talk)
        assert len(stopped) == 5
        assert [s.counts["initialize"] for s in (a, b, c)] == [1, 1, 1] and lab.count("initialize") == 1
        assert [s.counts["DELETE"] for s in (a, b, c)] == [1, 1, 1] and lab.alive == []
    assert not caplog.records
