"""Agents in graphs, graphs in agents, and what clients see of them over REST, SSE and A2A (spec core 2.3, 4.3, 12.15)."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from polyport import (
    AgentTool,
    App,
    FunctionAgent,
    Limits,
    LlmAgent,
    LoopAgent,
    Plugin,
    RemoteAgent,
    RunContext,
    SequentialAgent,
    ToolContext,
    tool,
)
from polyport.agents.a2a_client import A2AOptions
from polyport.agents.a2a_door import A2ALimits
from polyport.data.content import Content, FunctionResponse, Part, model_text
from polyport.data.event import Event
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call, chunks
from polyport.wire import a2a
from polyport.workflow import DEFAULT, START, Join, NodeContext, RetryPolicy, Workflow, node
from support.a2a_fake import chunk, fake_agent, status, task
from support.a2a_talk import asked, said, short, talking
from support.approvals import ASK, Till, approve, requests
from support.talk import Serve, answer, texts

INPUT = "adk_request_input"
FAST = A2AOptions(limits=A2ALimits(poll_s=0.0, poll_max_s=0.0, resubscribes=1))


def flow(*edges: Any, **more: Any) -> Workflow:
    return Workflow("app", edges=edges, **more)


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


def script(agent: LlmAgent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def upper(text: str) -> str:
    return text.upper()


def last(events: list[Any]) -> Any:
    return next(e["output"] for e in reversed(events) if "output" in e)


# ---- what agents see


async def test_the_first_agent_is_in_the_conversation_and_the_others_have_their_input_only(serve: Serve):
    first, second = llm("first", "one", "three"), llm("second", "two", "four")
    async with serve(flow((START, first, upper, second))) as talk:
        assert texts(await talk.run("hello")) == ["one", "two"]
        assert texts(await talk.run("and now")) == ["three", "four"]
    assert script(second).prompt(0) == ["user: ONE"] and script(second).prompt(1) == ["user: THREE"]
    assert script(first).prompt(1) == [
        "user: hello",
        "model: one",
        "user: For your information, this is what another agent did: | [second] said: two",
        "user: and now",
    ], "the answer of the whole workflow is part of the conversation"


async def test_a_single_turn_agent_has_its_input_only_also_at_the_start(serve: Serve):
    only = llm("only", "one", "two", mode="single_turn")
    async with serve(flow((START, only))) as talk:
        await talk.run("a")
        await talk.run("b")
    assert script(only).prompt(1)[0].startswith("user: b | ")


async def test_agents_on_branches_do_not_see_each_other_in_one_turn(serve: Serve):
    begun = anyio.Event()

    async def late(request: Any, _: Any) -> str:
        begun.set()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return "a says"

    async def later(request: Any, _: Any) -> str:
        await begun.wait()
        return "b says"

    a, b = llm("a", late, "again"), llm("b", later, "again")
    async with serve(flow((START, (a, b), Join("both"), node(lambda d: d, name="end")))) as talk:
        assert last(await talk.run("go")) == {"a": "a says", "b": "b says"}
    assert script(a).prompt() == ["user: go"] and script(b).prompt() == ["user: go"]


async def test_dicts_go_to_agents_as_json_and_nothing_as_the_message(serve: Serve):
    a, b = llm("a", "x"), llm("b", "y")
    make, nothing = node(lambda: {"n": 1}, name="make"), node(lambda: None, name="nothing")
    async with serve(flow((START, make, a, nothing, b))) as talk:
        await talk.run("hello")
    assert script(a).prompt() == ['user: {"n":1}'] and script(b).prompt() == ["user: hello"]


async def test_section_4_3_only_the_last_own_text_is_the_output(serve: Serve):
    """What an agent below says is no output, and neither is what comes before a tool call."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    chatty = llm("chatty", [call("look")], "the end", tools=[look])
    boss = llm("boss", call("transfer_to_agent", {"agent_name": "helper"}), sub_agents=[llm("helper", "helped")])
    team = SequentialAgent(name="team", sub_agents=[llm("x", "x said"), llm("y", "y said")])
    got: dict[str, Any] = {}

    def keep(found: dict[str, Any]) -> None:
        got.update(found)

    async with serve(flow((START, node(lambda t: t, name="pre"), (chatty, boss, team), Join("all"), keep))) as talk:
        events = await talk.run("hi")
        assert set(texts(events)) == {"the end", "helped", "x said", "y said"}
    assert got == {"chatty": "the end", "boss": None, "team": None}


async def test_core_37_an_agents_text_is_said_once(serve: Serve):
    async with serve(flow((START, llm("m", "the text"), upper))) as talk:
        first, second = await talk.run("hi")
        assert first["nodeInfo"] == {"path": "app@1/m@1", "messageAsOutput": True, "outputFor": ["app@1/m@1"]}
        assert "output" not in first and texts([first]) == ["the text"] and second["output"] == "THE TEXT"


async def test_a_typed_answer_is_a_value_for_the_next_node(serve: Serve):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    m = llm("m", '```json\n{"n": 4}\n```', output_schema=schema, output_key="found")
    async with serve(flow((START, m, node(lambda d: d["n"] + 1, name="plus")))) as talk:
        assert last(await talk.run("hi")) == 5 and (await talk.stored())["state"]["found"] == {"n": 4}


async def test_an_agents_answer_chooses_the_route(serve: Serve):
    judge = llm("judge", "good\n", "bad", "what?", mode="single_turn")

    def end(name: str) -> Any:
        return node(lambda: name, name=name)

    keep, drop, other = end("keep"), end("drop"), end("other")
    async with serve(flow((START, judge), (judge, {"good": keep, "bad": drop, DEFAULT: other}))) as talk:
        assert [last(await talk.run("x")) for _ in range(3)] == ["keep", "drop", "other"]


async def test_custom_agents_give_outputs_and_routes(serve: Serve):
    async def work(ctx: RunContext) -> None:
        assert ctx.user_content is not None
        await ctx.emit(ctx.event(content=model_text("thinking")))
        await ctx.emit(ctx.event(output=ctx.user_content.text.upper()))

    agent = FunctionAgent(name="custom", function=work)
    async with serve(flow((START, node(lambda t: t + "!", name="pre"), agent, node(lambda x: x, name="end")))) as talk:
        assert last(await talk.run("hi")) == "HI!"


async def test_a_failing_model_is_tried_again_by_the_node(serve: Serve):
    m = llm("m", ValueError("busy"), "fine")
    async with serve(flow((START, node(m, retry=RetryPolicy(initial_s=0))))) as talk:
        assert texts(await talk.run("hi")) == ["fine"]


async def test_the_budget_of_model_calls_is_shared(serve: Serve):
    a, b = llm("a", "x"), llm("b", "y")
    async with serve(flow((START, a, b)), limits=Limits(max_llm_calls=1)) as talk:
        assert "max_llm_calls" in (await talk.sse("hi"))[-1][1]["error"]


async def test_agents_in_nodes_stream(serve: Serve):
    async with serve(flow((START, node(upper), llm("m", chunks("a", "b"))))) as talk:
        events = await talk.sse("hi", streaming=True)
        assert texts(events) == ["a", "b", "ab"] and events[-1]["nodeInfo"]["path"] == "app@1/m@1"
        assert [e.get("partial", False) for e in events if e["author"] == "m"] == [True, True, False]


# ---- approvals and tools


async def test_a_human_approves_a_call_of_an_agent_in_a_branch(serve: Serve):
    till = Till()
    a = llm("a", call("pay", {"amount": 1}, "c1"), "a paid", tools=till.tools)
    b = llm("b", call("pay", {"amount": 2}, "c1"), "b paid", tools=till.tools)
    async with serve(flow((START, node(upper), (a, b), Join("both")))) as talk:
        one, two = requests(await talk.run("go"))
        assert texts(await talk.run(approve(two))) in (["a paid"], ["b paid"])
        assert len(till.paid) == 1
        done = await talk.run(approve(one))
        assert last(done) == {"a": "a paid", "b": "b paid"}
    assert sorted(till.paid) == [1, 2]


async def test_a_human_approves_a_call_of_the_first_agent(serve: Serve):
    till = Till()
    a = llm("a", call("pay", {"amount": 1}, "c1"), "paid", tools=till.tools)
    async with serve(flow((START, a, upper))) as talk:
        (request,) = requests(await talk.run("go"))
        assert last(await talk.run(approve(request))) == "PAID"
        (refusal,) = [request]
        response = await talk.client.post("/run", json=talk.body(approve(refusal)))
        assert response.status == 409
    assert till.paid == [1]


async def test_section_12_26_a_tool_node_may_need_an_approval(serve: Serve):
    till = Till()
    args = node(lambda: {"amount": 7}, name="args")
    seen: list[str] = []

    class Watch(Plugin):
        async def before_tool(self, ctx: Any, tool: Any, args: Any) -> None:
            seen.append(tool.name)

    async with serve(
        flow((START, args, till.tool(), node(lambda d: d["paid"], name="end"))), plugins=[Watch()]
    ) as talk:
        (request,) = requests(await talk.run("go"))
        assert till.paid == [] and request["args"]["originalFunctionCall"]["name"] == "pay"
        assert last(await talk.run(approve(request))) == 7
        (request,) = requests(await talk.run("go"))
        failed = await talk.sse(approve(request, False))
        assert "rejected" in failed[-1][1]["error"]
    assert till.paid == [7] and "pay" in seen


async def test_a_tool_node_may_ask_and_may_take_long(serve: Serve):
    @tool
    def book(ctx: ToolContext) -> dict[str, Any]:
        """Book."""
        if not ctx.inputs:
            ctx.request_input("Which day?")
            return {"status": "waits"}
        return {"day": ctx.input}

    none = node(lambda: None, name="none")
    async with serve(flow((START, none, book))) as talk:
        (request,) = requests(await talk.run("go"), INPUT)
        assert last(await talk.run(answer(request["id"], INPUT, {"response": "Monday"}))) == {"day": "Monday"}

    @tool(long_running=True)
    def order() -> None:
        """Order."""

    async with serve(flow((START, none, order, node(lambda x: x, name="end")))) as talk:
        (asked_for,) = await talk.run("go")
        (id,) = asked_for["longRunningToolIds"]
        assert last(await talk.run(answer(id, "order", {"result": "came"}))) == "came"


async def test_a_failing_tool_is_tried_again(serve: Serve):
    tried: list[int] = []

    @tool
    def flaky() -> str:
        """Flaky."""
        tried.append(1)
        if len(tried) < 3:
            raise ValueError("not yet")
        return "ok"

    none = node(lambda: None, name="none")
    async with serve(flow((START, none, node(flaky, retry=RetryPolicy(initial_s=0))))) as talk:
        assert last(await talk.run("go")) == "ok" and len(tried) == 3
    tried.clear()
    async with serve(flow((START, none, flaky))) as talk:
        assert "not yet" in (await talk.sse("go"))[-1][1]["error"] and len(tried) == 1


# ---- graphs in agents


async def test_a_workflow_is_a_tool_of_an_agent(serve: Serve):
    inner = Workflow("inner", edges=[(START, upper, llm("writer", "written"))], description="Writes.")
    outer = llm("app", call("inner", {"request": "abc"}, "c1"), "I have it.", tools=[AgentTool(inner)])
    async with serve(outer) as talk:
        assert texts(await talk.run("go")) == ["I have it."]
    assert script(outer).prompt()[-1] == "user: result inner {'result': 'written'}"


@pytest.mark.parametrize("kind", ["function", "agent"])
async def test_a_workflow_that_is_a_tool_may_ask_a_human(serve: Serve, kind: str):
    till = Till()

    async def ask(text: str, ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    step: Any = ask if kind == "function" else llm("m", call("pay", {"amount": 3}, "p1"), "paid", tools=till.tools)
    inner = Workflow("inner", edges=[(START, upper, step, node(lambda x: f"<{x}>", name="end"))], description="Asks.")
    outer = llm("app", call("inner", {"request": "abc"}, "c1"), "I have it.", tools=[AgentTool(inner)])
    async with serve(outer) as talk:
        events = await talk.run("go")
        if kind == "function":
            reply = answer("q", INPUT, {"response": "yes"})
        else:
            reply = approve(requests(events)[0])
        assert texts(await talk.run(reply)) == ["I have it."]
    wanted = "<yes>" if kind == "function" else "<paid>"
    assert script(outer).prompt()[-1] == f"user: result inner {{'result': '{wanted}'}}"


async def test_escalation_in_a_graph_ends_the_loop_around_it(serve: Serve):
    rounds: list[int] = []

    async def work(ctx: NodeContext) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            ctx.actions.escalate = True

    after: list[int] = []
    inner = Workflow("inner", edges=[(START, work, node(lambda: after.append(1), name="after"))])
    async with serve(LoopAgent(name="app", max_iterations=9, sub_agents=[inner])) as talk:
        await talk.run("go")
    assert len(rounds) == 3 and len(after) == 3


async def test_callbacks_and_plugins_see_a_workflow_as_every_agent(serve: Serve):
    seen: list[str] = []

    class Watch(Plugin):
        async def before_agent(self, ctx: Any) -> None:
            seen.append(f"before {ctx.agent_name}")

        async def after_agent(self, ctx: Any) -> None:
            seen.append(f"after {ctx.agent_name}")

    agent = flow((START, llm("m", "x"), upper), after_agent=lambda ctx: model_text("the end"))
    async with serve(agent, plugins=[Watch()]) as talk:
        assert texts(await talk.run("go")) == ["x", "X", "the end"]
    assert seen == ["before app", "before m", "after m", "after app"]


async def test_spans_may_be_put_around_nodes():
    """The hook for telemetry: `watch_node`, with the context, the node's path and what comes next."""
    seen: list[str] = []

    async def watch(ctx: RunContext, path: str, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(path)
        return await call_next()

    app = App(flow((START, upper, llm("m", "x"))))
    engine = app.runs._engines["app"]  # pyright: ignore[reportPrivateUsage]  no plugin has the hook yet
    app.runs._engines["app"] = type(engine)(  # pyright: ignore[reportPrivateUsage]
        engine.tree, engine.stores, {**engine.hooks, "watch_node": [watch]}, engine.seams
    )
    await app.ask("hi")
    assert seen == ["app@1/upper@1", "app@1/m@1"]


def test_trees_with_workflows_are_checked_as_all_trees():
    m = llm("m", "x")
    with pytest.raises(ConfigError, match="twice"):
        App(
            SequentialAgent(
                name="app", sub_agents=[Workflow("a", edges=[(START, m)]), Workflow("b", edges=[(START, m)])]
            )
        )
    with pytest.raises(ConfigError, match="has no model"):
        App(flow((START, LlmAgent(name="m"))))
    with pytest.raises(ConfigError, match="the agent's name"):
        node(m, name="other")
    with pytest.raises(ConfigError, match="cannot have that setting"):
        node(m, uses=[m])


# ---- on the wire


async def test_all_that_a_graph_says_is_on_the_wire_and_notes_are_not(serve: Serve):
    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("Why?", {"type": "string"}, {"n": 1}, interrupt_id="q")

    def decide(text: str) -> Event:
        return Event(output="on", routes=["go"])

    async with serve(flow((START, decide), (decide, {"go": ask}))) as talk:
        for how in (talk.run, talk.sse):
            first, second = await how("hi")
            assert first["routes"] == ["go"] and first["output"] == "on"
            assert second["requestedInput"] == {
                "interruptId": "q",
                "message": "Why?",
                "responseSchema": {"type": "string"},
                "payload": {"n": 1},
            }


async def test_a_detached_run_is_followed_like_every_other(serve: Serve):
    async with serve(flow((START, upper, llm("m", "x")))) as talk:
        frames = await talk.sse("hi", query={"detach": "true"})
        response = await talk.client.get(f"/runs/{frames[0]['invocationId']}/events")
        assert response.text.count("data:") >= 2


async def test_a_workflow_behind_an_a2a_task():
    agent = flow((START, upper, llm("m", "written")))
    async with talking(agent) as caller:
        task = await caller.send("go")
        assert (short(task), said(task)[-7:]) == ("completed", "written")
    async with talking(flow((START, upper))) as caller:
        assert said(await caller.send("go")) == "GO", "what a function came to is said"
    async with talking(flow((START, node(lambda: {"n": 1}, name="n")))) as caller:
        assert said(await caller.send("go")) == '{"n":1}'


async def test_a_workflow_behind_an_a2a_task_asks_and_is_approved():
    till = Till()
    agent = flow((START, upper, llm("m", call("pay", {"amount": 5}, "c1"), "paid", tools=till.tools)))
    async with talking(agent) as caller:
        task = await caller.send("go")
        assert short(task) == "input_required"
        id = next(p.data["id"] for p in asked(task) if isinstance(p.data, dict) and "id" in p.data)
        part = a2a.Part(
            data={"id": id, "name": ASK, "response": {"confirmed": True}}, metadata={"adk_type": "function_response"}
        )
        done = await caller.send([part], task=task.id)
        assert short(done) == "completed" and till.paid == [5]

    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("Which day?", interrupt_id="q")

    async with talking(flow((START, ask, upper))) as caller:
        task = await caller.send("go")
        assert short(task) == "input_required"
        part = a2a.Part(
            data={"id": "q", "name": INPUT, "response": {"response": "monday"}},
            metadata={"adk_type": "function_response"},
        )
        assert said(await caller.send([part], task=task.id)) == "MONDAY"


async def test_cancelling_an_a2a_task_stops_the_nodes():
    stopped = anyio.Event()

    async def hangs() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with talking(flow((START, hangs))) as caller:
        task = await caller.begin("go")
        await caller.until(task.id, "working")
        assert short(await caller.cancel(task.id)) == "canceled"
        with anyio.fail_after(30):
            await stopped.wait()


async def test_a_remote_agent_is_a_node_that_gets_its_input_and_may_ask():
    async with fake_agent() as fake:
        far = RemoteAgent(name="far", description="Far.", url=fake.url, options=FAST)
        async with App(flow((START, upper, far, node(lambda x: f"<{x}>", name="end")))) as app:
            fake.streams({"task": task()}, chunk("4", last=True), status("COMPLETED"))
            assert (await app.ask("two", session="s")).text == "<4>"
            fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which day?"))
            paused = await app.ask("three", session="s")
            (asked_for,) = [c for e in paused.events for c in e.calls]
            fake.streams({"task": task()}, chunk("5", last=True), status("COMPLETED"))
            told = FunctionResponse(id=asked_for.id, name=asked_for.name, response={"result": "Monday"})
            reply = Content(role="user", parts=[Part(function_response=told)])
            assert (paused.outcome.status, (await app.ask(reply, session="s")).text) == ("paused", "<5>")
        assert [c.texts for c in fake.calls[:2]] == [["TWO"], ["THREE"]] and "Monday" in str(fake.calls[2].texts)


async def test_a_change_of_the_session_in_the_middle_of_a_run_loses_nothing(serve: Serve):
    """Somebody patches the state while an agent works: what the agent says is still found."""

    async def patched(request: Any, _: Any) -> str:
        response = await talk.client.request("PATCH", talk.path, json={"stateDelta": {"x": 1}})
        assert response.status == 200, response.text
        return "said"

    pre = node(lambda t: t, name="pre")
    agent = flow((START, pre, llm("m", patched), upper, llm("n", patched), node(lambda t: t + "!", name="end")))
    async with serve(agent) as talk:
        assert last(await talk.run("hi")) == "said!"
