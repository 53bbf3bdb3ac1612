"""The requests of a run say to which trace they belong: to remote agents over HTTP and gRPC, and to APIs."""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from interop.api_fake import as_json, fake_api
from interop.mcp_servers.lab import listening
from polyport import App, LlmAgent, Plugin
from polyport.agents.a2a_client import BINDINGS, A2AClient, A2AOptions
from polyport.agents.remote import RemoteAgent
from polyport.protocols.a2a.mount import A2a
from polyport.testing import ScriptedModel, call
from polyport.tools.openapi import OpenApiToolset
from support.a2a_fake import fake_agent, status, task
from support.spans import Telemetry

ONLY_GRPC = {"GRPC": BINDINGS["GRPC"]}
FIND = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/things": {"get": {"operationId": "find"}}},
}


def named(span: ReadableSpan) -> str:
    """How a request names this span as its parent, with the flags of its trace."""
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


async def told_remote(plugins: Sequence[Plugin]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The headers of the message, and those of the requests for the card."""
    async with fake_agent() as fake:
        far = RemoteAgent(name="far", description="d", url=fake.url)
        async with App(far, plugins=plugins) as app:
            fake.streams({"task": task()}, status("COMPLETED"))
            await app.ask("hi", session="s")
        return fake.calls[0].headers, [headers for _, headers in fake.gets]


async def test_a_remote_agent_is_told_the_trace_of_the_run() -> None:
    telemetry = Telemetry()
    headers, cards = await told_remote([telemetry.plugin])
    assert headers["traceparent"] == named(telemetry.span("invoke_agent far"))
    assert all("traceparent" in one for one in cards)


async def test_nothing_is_told_where_nobody_measures() -> None:
    headers, cards = await told_remote([])
    assert not [one for one in (headers, *cards) if "traceparent" in one]


async def test_a_remote_agent_is_told_over_grpc_too() -> None:
    here, there = Telemetry(), Telemetry()
    a2a = A2a(grpc="127.0.0.1:0")
    far = App(LlmAgent(name="root", model=ScriptedModel("hello")), plugins=[there.plugin], protocols=[a2a])
    trusting = A2AOptions(trusted_hosts=("127.0.0.1",))  # gRPC is at another port than the card
    async with listening(far.asgi) as url:
        near = RemoteAgent(name="far", description="d", client=A2AClient(url, options=trusting, bindings=ONLY_GRPC))
        async with App(near, plugins=[here.plugin]) as app:
            assert (await app.ask("hi", session="s")).text == "hello"
    served = there.span("invoke_agent root")
    asking = here.span("invoke_agent far")
    assert served.parent is not None and asking.context is not None
    assert (served.parent.trace_id, served.parent.span_id) == (asking.context.trace_id, asking.context.span_id)


async def test_an_api_is_told_the_call_that_asks_it() -> None:
    telemetry = Telemetry()
    async with fake_api() as api:
        api.on("GET /things", as_json([]))
        toolset = OpenApiToolset(FIND, base_url=api.url)
        model = ScriptedModel(call("find"), "done")
        async with App(LlmAgent(name="app", model=model, tools=[toolset]), plugins=[telemetry.plugin]) as app:
            await app.ask("go", session="s")
        await toolset.aclose()
        (seen,) = api.seen
    assert seen.header("traceparent") == named(telemetry.span("execute_tool find"))
