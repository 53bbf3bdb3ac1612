"""McpToolset against child servers that misbehave: sessions, losses, timeouts, schemas, results (spec core 6.4)."""

import base64
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from interop.mcp_servers.lab import ECHO, Lab, tool
from polyport import App, LlmAgent, SessionKey, Stores
from polyport.errors import AgentError, ConfigError, LimitExceeded, TimedOut, Unavailable
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.tools.mcp import HttpServer, McpLimits, McpToolset, StdioServer
from polyport.wire.anthropic import encode_request as encode_anthropic
from polyport.wire.gemini_request import encode_request as encode_gemini
from polyport.wire.openai import OFFICIAL
from polyport.wire.openai import encode_request as encode_openai


def agent(*steps: Any, tools: list[Any], **fields: Any) -> tuple[LlmAgent, ScriptedModel]:
    model = ScriptedModel(*steps)
    return LlmAgent(name="app", model=model, tools=tools, **fields), model


async def run(toolset: McpToolset, *steps: Any, **options: Any) -> tuple[list[Any], ScriptedModel]:
    """The responses of the calls in `steps`, each asked of the model one by one."""
    made, model = agent(*steps, "done", tools=[toolset])
    reply = await App(made, **options).ask("go")
    model.check()
    return [r.response for e in reply.events for r in e.responses], model


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda **orders: Lab(tmp_path, **orders)


async def pid_of(toolset: McpToolset) -> int:
    found = await toolset.ask(None, lambda session: session.call("pid", {}), "pid")
    return int(found.parts[0].text or "")


# ---- life


async def test_core_6_4_connects_when_it_is_first_needed(lab: Callable[..., Lab]):
    server = lab()
    async with server.toolset().running():
        assert server.started == []


async def test_FR_208_one_child_for_many_runs_and_none_after(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset()
    async with toolset.running():
        for n in range(5):
            responses, _ = await run(toolset, [call("echo", {"text": f"a{n}"}), call("echo", {"text": f"b{n}"})])
            assert responses == [{"output": f"a{n}"}, {"output": f"b{n}"}]
        made, _ = agent(*["x"] * 20, tools=[toolset])
        async with App(made) as app, anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(lambda: app.ask("hi"))
    assert len(server.started) == 1
    assert server.count("initialize") == 1
    assert server.alive == []


async def test_FR_208_children_that_are_killed_are_replaced_one_by_one(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset()
    async with toolset.running():
        open_files: list[int] = []
        for n in range(20):
            pid = await pid_of(toolset)
            assert server.started[-1] == pid and len(server.started) == n + 1
            open_files.append(len(list(Path("/proc/self/fd").iterdir())))
            os.kill(pid, signal.SIGKILL)
        assert await pid_of(toolset) == server.started[-1]
        assert server.alive == [server.started[-1]]
        assert open_files[-1] <= open_files[1]
    assert server.alive == []


async def test_FR_208_a_server_that_never_finishes_the_handshake(lab: Callable[..., Lab]):
    server = lab(mute=True)
    toolset = server.toolset(limits=McpLimits(connect_timeout_s=0.5))
    async with toolset.running():
        with pytest.raises(Unavailable, match=r"did not finish its handshake within 0\.5 s"):
            await toolset.tools(None)  # pyright: ignore[reportArgumentType]
        assert server.alive == []
    assert len(server.started) == 1


async def test_FR_208_leaving_while_a_server_is_being_started(lab: Callable[..., Lab]):
    server = lab(mute=True, tells=True)
    toolset = server.toolset()
    errors: list[Exception] = []

    async def ask() -> None:
        try:
            await toolset.resources()
        except Unavailable as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks, toolset.running():
        tasks.start_soon(ask)
        assert await server.told() == "mute"
    assert "was closed while it was being opened" in str(errors[0])
    assert server.alive == []


PARENT = """
import sys, anyio
from polyport.stores.memory import MemorySessions
from polyport.tools.mcp import McpToolset, StdioServer
async def main():
    toolset = McpToolset(StdioServer(sys.executable, ["-I", "-S", *sys.argv[1:]]))
    async with toolset.running():
        await toolset.tools(None)
        print("up", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_FR_208_no_child_outlives_a_parent_that_is_killed(lab: Callable[..., Lab]):
    server = lab(deaf=True)
    arguments = [sys.executable, "-c", PARENT, *server.server().args[2:]]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == b"up\n"
            assert len(server.alive) == 1
            parent.kill()
            parent.communicate(timeout=20)  # ends when nobody has its stderr open any more: when the child is gone too
        finally:
            for pid in server.alive:
                os.kill(pid, signal.SIGKILL)


async def test_FR_208_a_server_that_ignores_the_end_of_stdin_is_killed(lab: Callable[..., Lab]):
    server = lab(deaf=True)
    toolset = server.toolset()
    async with toolset.running():
        await toolset.prompts()
        assert len(server.alive) == 1
    assert server.alive == []


async def test_FR_208_after_aclose_nothing_is_left_and_it_may_be_used_again(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset()
    async with toolset.running():
        await toolset.prompts()
        await toolset.aclose()
        assert server.alive == []
        await toolset.aclose()
        await toolset.prompts()
        assert len(server.alive) == 1
    await toolset.aclose()
    assert server.alive == []


async def test_FR_208_the_app_gives_the_session_a_home_and_nothing_is_left_behind(
    lab: Callable[..., Lab], caplog: pytest.LogCaptureFixture
):
    server = lab()
    toolset = server.toolset()
    responses, _ = await run(toolset, call("echo", {"text": "hi"}), call("nothing"))
    assert responses[0] == {"output": "hi"}
    assert server.alive == []
    assert not [r for r in caplog.records if "outside of `running()`" in r.getMessage()]


async def test_the_child_gets_few_variables_and_those_it_was_given(
    lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET", "s3cret")
    server = lab()
    toolset = McpToolset(server.server(env={"TOKEN": "t"}, cwd=server.folder))
    responses, _ = await run(toolset, call("environment"))
    seen = json.loads(responses[0]["output"])
    assert seen["TOKEN"] == "t" and "SECRET" not in seen and seen["PATH"] == os.environ["PATH"]
    assert "TOKEN" not in repr(toolset.server) and str(server.folder) not in repr(toolset)


async def test_garbage_on_stdout_is_passed_over(lab: Callable[..., Lab]):
    toolset = lab(garbage=["Server listening...", "{", '{"jsonrpc": "2.0"}', "\u2603"]).toolset()
    responses, _ = await run(toolset, call("echo", {"text": "hi"}))
    assert responses == [{"output": "hi"}]


async def test_a_command_that_does_not_exist_is_said():
    with pytest.raises(Unavailable, match="there is no command 'no-such-server' on the PATH"):
        await McpToolset("no-such-server --key secret").tools(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(Unavailable, match="closed the connection before the handshake"):
        await McpToolset("./no/such/server").tools(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(Unavailable, match="cannot be reached: No such file"):
        await McpToolset(StdioServer(sys.executable, cwd="/no/such/folder")).resources()


# ---- losses


async def test_core_115_a_connection_lost_between_uses_is_replaced_unnoticed(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset()
    async with toolset.running():
        os.kill(await pid_of(toolset), signal.SIGKILL)
        assert [t.name for t in await toolset.tools(None)][:2] == ["echo", "pid"]  # pyright: ignore[reportArgumentType]
    assert len(server.started) == 2


async def test_core_115_a_call_is_retried_once_when_the_server_dies_in_it(lab: Callable[..., Lab]):
    server = lab(die={"echo": 1})
    toolset = server.toolset()
    async with toolset.running():
        responses, _ = await run(toolset, call("echo", {"text": "hi"}))
    assert responses == [{"output": "hi"}]
    assert server.count("tools/call", name="echo") == 2


async def test_core_115_a_second_loss_is_an_error_and_the_next_call_works(lab: Callable[..., Lab]):
    server = lab(die={"echo": 2})
    toolset = server.toolset()
    async with toolset.running():
        responses, _ = await run(toolset, call("echo", {"text": "a"}), call("echo", {"text": "b"}))
    assert "connection was lost" in responses[0]["error"]
    assert responses[1] == {"output": "b"}
    assert server.count("tools/call", name="echo") == 3
    assert server.alive == []


async def test_core_6_4_a_destructive_call_is_not_sent_twice(lab: Callable[..., Lab]):
    wipe = tool("echo", annotations={"destructiveHint": True})
    server = lab(tools=[wipe, tool("pid")], die={"echo": 1})
    toolset = server.toolset()
    async with toolset.running():
        responses, _ = await run(toolset, call("echo", {"text": "a"}))
    assert "may or may not have been carried out" in responses[0]["error"]
    assert server.count("tools/call", name="echo") == 1


async def test_core_115_pages_are_read_to_the_end(lab: Callable[..., Lab]):
    tools = [tool(f"t{n}") for n in range(7)]
    toolset = lab(tools=tools, page_size=3).toolset()
    found = await toolset.tools(None)  # pyright: ignore[reportArgumentType]
    assert [t.name for t in found] == [t["name"] for t in tools]


async def test_core_115_pages_start_again_after_a_loss(lab: Callable[..., Lab]):
    tools = [tool(f"t{n}") for n in range(7)]
    server = lab(tools=tools, page_size=3, die={"tools page 1": 1})
    toolset = server.toolset()
    async with toolset.running():
        found = await toolset.tools(None)  # pyright: ignore[reportArgumentType]
    assert [t.name for t in found] == [t["name"] for t in tools]
    assert server.count("tools/list") == 2 + 3


async def test_core_115_a_second_loss_of_the_list_ends_the_run(lab: Callable[..., Lab]):
    server = lab(die={"tools page 0": 2})
    toolset = server.toolset()
    made, _ = agent(tools=[toolset])
    async with toolset.running():
        with pytest.raises(Unavailable, match="the connection was lost while it was asked for its tools"):
            await App(made).ask("hi")
    assert server.count("tools/list") == 2


async def test_pages_that_never_end_are_refused(lab: Callable[..., Lab]):
    toolset = lab(circle=True, page_size=1).toolset()
    with pytest.raises(AgentError, match="in a circle"):
        await toolset.tools(None)  # pyright: ignore[reportArgumentType]


async def test_more_items_than_the_limit_are_refused(lab: Callable[..., Lab]):
    toolset = lab(tools=[tool(f"t{n}") for n in range(12)], page_size=5).toolset(limits=McpLimits(items=10))
    with pytest.raises(LimitExceeded, match="more than 10 items"):
        await toolset.tools(None)  # pyright: ignore[reportArgumentType]


async def test_a_call_that_takes_too_long_is_an_error_and_the_next_works(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset(limits=McpLimits(call_timeout_s=1.0))
    async with toolset.running():
        responses, _ = await run(toolset, call("hang"), call("echo", {"text": "hi"}))
    assert responses[0] == {"error": f"{toolset.server.where}: tool hang took longer than 1 s"}
    assert responses[1] == {"output": "hi"}
    assert server.count("notifications/cancelled") == 1
    assert server.count("ping") == 1  # the connection was in doubt, and was good
    assert len(server.started) == 1


async def test_a_server_that_hangs_altogether_is_replaced(lab: Callable[..., Lab]):
    server = lab()
    toolset = server.toolset(limits=McpLimits(call_timeout_s=0.3, ping_timeout_s=0.3))
    async with toolset.running():
        pid = await pid_of(toolset)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimedOut):
            await toolset.ask(None, lambda s: s.call("pid", {}), "pid", timeout_s=0.3)
        assert await pid_of(toolset) != pid
        assert pid not in server.alive
    assert len(server.started) == 2


async def test_cancelling_a_run_cancels_the_call(lab: Callable[..., Lab]):
    server = lab(tells=True)
    toolset = server.toolset()
    made, _ = agent(call("hang"), tools=[toolset])
    async with toolset.running(), App(made) as app, anyio.create_task_group() as tasks:

        async def ask() -> None:
            await app.ask("go")

        tasks.start_soon(ask)
        assert await server.told() == "called"
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await server.told() == "cancelled"
    assert server.count("notifications/cancelled") == 1


# ---- names and filters


async def test_core_115_filter_by_names_and_by_function(lab: Callable[..., Lab], caplog: pytest.LogCaptureFixture):
    server = lab(tools=[tool("a"), tool("b", annotations={"readOnlyHint": True}), tool("c")])

    async def names(**options: Any) -> list[str]:
        made, model = agent("ok", tools=[server.toolset(**options)])
        await App(made).ask("hi", user="eve")
        return [t.name for t in model.requests[0].tools]

    assert await names() == ["a", "b", "c"]
    assert await names(only=["c", "a", "gone"]) == ["a", "c"]
    assert "has no tools named 'gone'" in caplog.text
    assert await names(only=lambda ctx, info: info.read_only and ctx.user_id == "eve") == ["b"]
    assert await names(only=[], use_resources=True) == ["load_mcp_resource"]
    with pytest.raises(ConfigError, match="list of names"):
        server.toolset(only="a")


async def test_prefix_and_names_that_models_would_refuse(lab: Callable[..., Lab]):
    odd = [tool("fs/read"), tool("fs.read"), tool("x" * 100), tool("ok")]
    server = lab(tools=odd, results={"fs.read": {"content": [{"type": "text", "text": "dot"}]}})
    toolset = server.toolset(prefix="my")
    async with toolset.running():
        found = await toolset.tools(None)  # pyright: ignore[reportArgumentType]
        assert [t.name for t in found] == ["my_fs_read", "my_fs_read_2", ("my_" + "x" * 100)[:64], "my_ok"]
        responses, _ = await run(toolset, call("my_fs_read_2"))
        assert responses == [{"output": "dot"}]


def test_core_122_arguments_must_be_strings():
    with pytest.raises(ConfigError, match="must be strings, not 3"):
        StdioServer("server", ["--port", 3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="must be strings"):
        StdioServer("server", "--port 3")
    with pytest.raises(ConfigError, match="a command or a URL"):
        McpToolset("")
    with pytest.raises(ConfigError, match="begin with http"):
        HttpServer("ftp://host/mcp")
    with pytest.raises(ConfigError, match="items is 0"):
        McpLimits(items=0)


# ---- schemas


def declared(model: ScriptedModel) -> dict[str, Any]:
    return {t.name: t for t in model.requests[0].tools}


async def declarations(toolset: McpToolset) -> dict[str, Any]:
    made, model = agent("ok", tools=[toolset])
    await App(made).ask("hi")
    return declared(model)


async def test_FR_201_definitions_of_draft_07_are_resolved(lab: Callable[..., Lab], caplog: pytest.LogCaptureFixture):
    draft = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"q": {"$ref": "#/definitions/Q"}},
        "definitions": {"Q": {"type": "string"}},
    }
    lost = {"type": "object", "properties": {"q": {"$ref": "#/definitions/Gone"}}}
    tools = [{"name": "draft", "inputSchema": draft}, {"name": "lost", "inputSchema": lost}, ECHO]
    found = await declarations(lab(tools=tools).toolset())
    assert found["draft"].parameters == {"type": "object", "properties": {"q": {"type": "string"}}}
    assert found["lost"].parameters == {"type": "object", "properties": {"q": {}}}
    assert "#/$defs/Gone" in caplog.text
    assert found["echo"].parameters == ECHO["inputSchema"]
    assert found["echo"].response is None  # absent, not null


async def test_FR_202_lists_of_types(lab: Callable[..., Lab]):
    kv = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"kv": kv, "x": {"type": ["string", "integer"]}}}
    found = await declarations(lab(tools=[{"name": "t", "inputSchema": schema}]).toolset())
    assert found["t"].parameters == schema


async def test_FR_203_what_a_reference_leads_to_is_shown(lab: Callable[..., Lab]):
    payload = {
        "type": "object",
        "title": "P",
        "properties": {
            "identifiers": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["fast", "slow"], "type": "string"},
        },
        "required": ["identifiers"],
    }
    schema = {"type": "object", "properties": {"payload": {"$ref": "#/$defs/P"}}, "$defs": {"P": payload}}
    found = await declarations(lab(tools=[{"name": "t", "inputSchema": schema}]).toolset())
    shown = found["t"].parameters["properties"]["payload"]
    assert shown["properties"]["identifiers"] == {"type": "array", "items": {"type": "string"}}
    assert shown["properties"]["mode"]["enum"] == ["fast", "slow"]


@pytest.mark.parametrize(
    ("bad", "parameters"),
    [
        ({"name": "bad", "inputSchema": {"type": "string"}}, {"type": "object", "properties": {}}),
        ({"name": "bad", "inputSchema": {"type": "object", "properties": []}}, {"type": "object", "properties": {}}),
        ({"name": "bad", "inputSchema": "nonsense"}, {"type": "object", "properties": {}}),
        ({"name": "bad"}, {"type": "object", "properties": {}}),
        ({"inputSchema": {"type": "object"}}, None),
        ("nonsense", None),
        (
            {"name": "bad", "inputSchema": {"type": "object"}, "outputSchema": "x", "annotations": 3},
            {"type": "object", "properties": {}},
        ),
    ],
)
async def test_FR_201_a_tool_that_is_described_wrongly_costs_no_other(
    lab: Callable[..., Lab], caplog: pytest.LogCaptureFixture, bad: Any, parameters: Any
):
    found = await declarations(lab(tools=[ECHO, bad, tool("ok")]).toolset())
    assert found["echo"].parameters == ECHO["inputSchema"] and "ok" in found
    if parameters is None:
        assert len(found) == 2
    else:
        assert found["bad"].parameters == parameters
    assert caplog.records


# ---- results

WEATHER = {
    "type": "object",
    "properties": {
        "place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "sky": {"enum": ["clear", "cloudy"]},
    },
    "required": ["place", "sky"],
}
GOOD = {"place": {"city": "Paris"}, "sky": "clear"}
BAD = {"place": {"city": 3}, "sky": "green"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def weather(lab: Callable[..., Lab], result: dict[str, Any]) -> McpToolset:
    tools = [tool("weather", outputSchema=WEATHER)]
    return lab(tools=tools, results={"weather": result}).toolset()


async def test_FR_215_the_output_schema_is_shown_and_a_good_result_passes(lab: Callable[..., Lab]):
    toolset = weather(lab, {"content": [text(json.dumps(GOOD))], "structuredContent": GOOD})
    responses, model = await run(toolset, call("weather"))
    assert responses == [{"output": GOOD}]
    assert declared(model)["weather"].response == WEATHER


async def test_FR_215_every_provider_is_told_the_output_schema(lab: Callable[..., Lab]):
    nullable = {"type": "object", "properties": {"kv": {"type": ["object", "null"]}}}
    server = lab(tools=[{"name": "weather", "description": "Looks.", "inputSchema": nullable, "outputSchema": WEATHER}])
    _, model = await run(server.toolset())
    request = model.requests[0]
    gemini = json.loads(encode_gemini(request))["tools"][0]["functionDeclarations"][0]
    assert gemini["responseJsonSchema"] == WEATHER and gemini["description"] == "Looks."
    openai = encode_openai(request, model="m", stream=False, dialect=OFFICIAL)["tools"][0]["function"]
    anthropic = json.loads(encode_anthropic(request, model="m", stream=False))["tools"][0]
    for sent in (openai, anthropic):
        said, _, schema = sent["description"].partition("\n\nThe result is JSON of this schema: ")
        assert said == "Looks." and json.loads(schema) == WEATHER
    assert gemini["parametersJsonSchema"] == openai["parameters"] == anthropic["input_schema"] == nullable


async def test_FR_215_a_result_that_breaks_the_schema_is_an_error_result(lab: Callable[..., Lab]):
    toolset = weather(lab, {"content": [text(json.dumps(BAD))], "structuredContent": BAD})
    responses, _ = await run(toolset, call("weather"))
    error = responses[0]["error"]
    assert "does not fit the tool's output schema" in error and "place.city" in error and "sky" in error
    assert responses[0]["output"] == BAD


async def test_FR_215_a_result_without_structured_data_is_an_error_with_its_text(lab: Callable[..., Lab]):
    responses, _ = await run(weather(lab, {"content": [text("sunny")]}), call("weather"))
    assert "no structured data" in responses[0]["error"] and responses[0]["output"] == "sunny"


@pytest.mark.parametrize(
    ("result", "response"),
    [
        ({"content": [text("a"), text("b")]}, {"output": "a\nb"}),
        ({"content": []}, {"output": ""}),
        ({"content": [text("for you")], "structuredContent": {"n": 1}}, {"output": {"n": 1}, "text": "for you"}),
        ({"content": [text('{"n": 1}')], "structuredContent": {"n": 1}}, {"output": {"n": 1}}),
        ({"content": [text("boom"), text("bang")], "isError": True}, {"error": "boom\nbang"}),
        ({"content": [], "isError": True}, {"error": "tool t failed, and its server did not say why"}),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}]},
            {"output": "inside"},
        ),
        (
            {"content": [{"type": "resource_link", "uri": "file:///x", "name": "X"}]},
            {"output": "[resource file:///x (X)]"},
        ),
    ],
)
async def test_core_6_4_results(lab: Callable[..., Lab], result: Any, response: Any):
    responses, _ = await run(lab(tools=[tool("t")], results={"t": result}).toolset(), call("t"))
    assert responses == [response]


@pytest.mark.parametrize(
    "result", [{"content": "x"}, {}, {"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}]
)
async def test_a_malformed_result_is_an_error_result(lab: Callable[..., Lab], result: Any):
    responses, _ = await run(lab(tools=[tool("t")], results={"t": result}).toolset(), call("t"))
    assert "malformed" in responses[0]["error"] or "base64" in responses[0]["error"]


async def test_a_failed_call_is_known_to_the_callbacks(lab: Callable[..., Lab]):
    server = lab(tools=[tool("t")], results={"t": {"content": [text("no")], "isError": True}})
    seen: list[str] = []
    made, _ = agent(
        call("t"),
        call("unknown"),
        "done",
        tools=[server.toolset()],
        on_tool_error=lambda c, t, a, e: seen.append(str(e)),
    )
    await App(made).ask("go")
    assert seen[0] == "no" and "there is no tool 'unknown'" in seen[1]


async def test_long_text_is_cut_and_says_so(lab: Callable[..., Lab]):
    results = {"t": {"content": [text("x" * 500)]}, "s": {"content": [], "structuredContent": {"a": "y" * 500}}}
    toolset = lab(tools=[tool("t"), tool("s")], results=results).toolset(limits=McpLimits(text_chars=100))
    responses, _ = await run(toolset, [call("t"), call("s")])
    assert responses[0]["output"] == "x" * 100 + "\n[cut: 400 more characters; ask for less]"
    assert responses[1]["output"].startswith('{"a":"yyy') and "more characters" in responses[1]["output"]


PNG = b"\x89PNG\r\n\x1a\n" + bytes(200_000)
WAV = b"RIFF1234WAVE"


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


MIXED = [
    text("first"),
    {"type": "image", "data": base64_of(PNG), "mimeType": "image/png"},
    text("second"),
    {"type": "audio", "data": base64_of(WAV), "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "f:x", "blob": base64_of(b"zip"), "mimeType": "application/zip"}},
    text("third"),
]


async def test_FR_213_images_and_files_become_artifacts_in_the_order_of_the_text(lab: Callable[..., Lab]):
    toolset = lab(tools=[tool("t")], results={"t": {"content": MIXED}}).toolset()
    made, model = agent(call("t", id="c1"), "I see", "bye", tools=[toolset])
    app = App(made)
    reply = await app.ask("go", session="s")
    response = next(r.response for e in reply.events for r in e.responses)
    assert response is not None
    image, sound, file = response["artifacts"]
    assert (image, sound, file) == ("t-c1-1.png", "t-c1-2.wav", "t-c1-3.bin")
    assert response["output"].split("\n") == [
        "first",
        f"[image/png, {len(PNG)} bytes: artifact {image}]",
        "second",
        f"[audio/wav, {len(WAV)} bytes: artifact {sound}]",
        f"[application/zip, 3 bytes: artifact {file}]",
        "third",
    ]
    event = next(e for e in reply.events if e.responses)
    assert event.actions.artifact_delta == {image: 1, sound: 1, file: 1}
    assert app.stores.artifacts is not None
    stored = await app.stores.artifacts.load(SessionKey("app", "user", "s"), image)
    assert stored.inline_data is not None and stored.inline_data.data == PNG
    # the model sees the image in the request that answers the call, once, and no base64 anywhere
    shown = [p.inline_data for c in model.requests[1].contents for p in c.parts if p.inline_data is not None]
    assert [(b.mime_type, b.data) for b in shown] == [("image/png", PNG)]
    assert model.prompt()[-1] == f"user: Artifact {image}: | data"
    await app.ask("again", session="s")
    assert not [p for c in model.requests[2].contents for p in c.parts if p.inline_data is not None]


async def test_FR_213_without_an_artifact_store_or_over_the_limit_it_is_said(lab: Callable[..., Lab]):
    server = lab(tools=[tool("t")], results={"t": {"content": MIXED[:2]}})
    responses, _ = await run(server.toolset(), call("t"), stores=Stores(MemorySessions()))
    assert responses == [{"output": f"first\n[image/png, {len(PNG)} bytes: not kept, for there is no artifact store]"}]
    responses, _ = await run(server.toolset(limits=McpLimits(blob_bytes=1000)), call("t"))
    assert "larger than the limit of 1000 bytes (blob_bytes)" in responses[0]["output"]
    assert "artifacts" not in responses[0]


# ---- resources and prompts


async def test_resources_are_listed_read_and_offered_to_the_model(lab: Callable[..., Lab]):
    resources = [{"uri": f"note:{n}", "name": f"note {n}", "mimeType": "text/plain"} for n in range(60)]
    contents = {
        "note:1": [{"uri": "note:1", "text": "buy milk"}],
        "note:2": [{"uri": "note:2", "blob": base64_of(PNG), "mimeType": "image/png"}],
    }
    toolset = lab(tools=[], resources=resources, contents=contents, page_size=25).toolset(use_resources=True)
    async with toolset.running():
        assert [r.uri for r in await toolset.resources()] == [r["uri"] for r in resources]
        assert [p.text for p in await toolset.read_resource("note:1")] == ["buy milk"]
        steps = [
            call("load_mcp_resource", {"uri": u}, f"c{n}") for n, u in enumerate(["note:1", "note:2", "note:9", ""])
        ]
        responses, model = await run(toolset, steps)
    assert responses[0] == {"output": "buy milk"}
    assert responses[1]["artifacts"] == ["load_mcp_resource-c1-1.png"]
    assert "refused: resources/read: not known here" in responses[2]["error"]
    assert "uri must be the URI" in responses[3]["error"]
    description = declared(model)["load_mcp_resource"].description
    assert "- note:0: note 0\n" in description and description.endswith("- and 10 more")


async def test_prompts_are_listed_and_make_instructions(lab: Callable[..., Lab]):
    prompts = [{"name": "greet", "description": "How to greet.", "arguments": [{"name": "who", "required": True}]}]
    server = lab(tools=[], prompts=prompts, messages={"greet": "Greet {who} kindly."})
    toolset = server.toolset()
    async with toolset.running():
        listed = await toolset.prompts()
        assert [(p.name, [(a.name, a.required) for a in p.arguments]) for p in listed] == [("greet", [("who", True)])]
        messages = await toolset.get_prompt("greet", {"who": "Ann"})
        assert [(m.role, m.text) for m in messages] == [("user", "Greet Ann kindly.")]
        made, model = agent("hello", tools=[], instruction=toolset.instruction("greet", {"who": "Bo"}))
        await App(made).ask("hi")
        assert "Greet Bo kindly." in model.requests[0].system
        with pytest.raises(AgentError, match="refused"):
            await toolset.get_prompt("nothing")


def test_the_sdk_is_imported_late():
    code = """import sys; from polyport.tools.mcp import McpToolset; from polyport.protocols.mcp import make_server
McpToolset("x")
print([name for name in ("mcp", "pydantic", "httpx2", "starlette") if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_FR_207_nothing_is_logged_as_an_error(lab: Callable[..., Lab], caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    server = lab()
    toolset = server.toolset()
    made, _ = agent(*[call("echo", {"text": "x"}), "ok"] * 4, tools=[toolset])
    async with toolset.running(), App(made) as app:
        for _ in range(4):
            await app.ask("hi")
    assert not caplog.records
