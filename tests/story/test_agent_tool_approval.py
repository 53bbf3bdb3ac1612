"""A human approves calls of agents that work for another one's call (spec core 3.11, 12.21)."""

from typing import Any

import pytest

from polyport import Agent, AgentTool, App, Content, LlmAgent, SequentialAgent, ToolContext, make_tool
from polyport.data.event import Event
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.tools.confirm import confirm
from support.talk import Serve, said, texts

ASK = "adk_request_confirmation"


class Till:
    """Pays, and keeps a list of what it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.tool = make_tool(self.pay, name="pay", require_confirmation=True)

    def pay(self, amount: int) -> dict[str, int]:
        """Pay an amount."""
        self.paid.append(amount)
        return {"paid": amount}


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: Agent) -> ScriptedModel:
    assert isinstance(agent, LlmAgent) and isinstance(agent.model, ScriptedModel)
    return agent.model


def ask(name: str, id: str = "") -> Any:
    return call(name, {"request": "do it"}, id)


def pay(amount: int, id: str = "") -> Any:
    return call("pay", {"amount": amount}, id)


def requested(events: list[Event], name: str = ASK) -> list[str]:
    """Ids of the requests to a human, in order."""
    return [c.id for e in events for c in e.calls if c.name == name]


def verdicts(ids: list[str], confirmed: bool = True) -> Content:
    parts = [p for id in ids for p in said(id, ASK, {"confirmed": confirmed}).parts]
    return Content(role="user", parts=parts)


def results(events: list[Event]) -> list[Any]:
    return [r.response for e in events for r in e.responses]


async def test_FR_118_a_call_inside_an_agent_tool_is_approved_and_carried_out_once():
    till = Till()
    child = llm("child", pay(7, "p"), "paid it", tools=[till.tool])
    boss = llm("boss", ask("child", "c"), "done", tools=[AgentTool(child)])
    app = App(SequentialAgent(name="app", sub_agents=[boss, llm("last", "last")]))
    got = await app.ask("hi", session="s1")
    assert [e.author for e in got.events] == ["boss", "child"], "of the child's events the request is shown"
    assert (got.outcome.status, till.paid) == ("paused", [])
    got = await app.ask(verdicts(requested(got.events)), session="s1")
    assert till.paid == [7]
    assert (got.outcome.status, results(got.events)) == ("finished", [{"result": "paid it"}])
    assert [e.text for e in got.events if e.text] == ["done", "last"]
    assert model(child).prompt() == [
        "user: do it",
        "model: call pay({'amount': 7})",
        "user: result pay {'paid': 7}",
    ]
    assert len(model(boss).requests) == 2


async def test_FR_138_a_declined_call_is_told_to_the_child_not_to_its_caller():
    till = Till()
    child = llm("child", pay(7), "I may not pay", tools=[till.tool])
    app = App(llm("boss", ask("child"), "done", tools=[AgentTool(child)]))
    got = await app.ask("hi", session="s1")
    (id,) = requested(got.events)
    got = await app.ask(said(id, ASK, {"confirmed": False, "payload": {"reason": "too much"}}), session="s1")
    assert (till.paid, results(got.events)) == ([], [{"result": "I may not pay"}])
    assert "too much" in model(child).prompt()[-1]


@pytest.mark.parametrize("order", [[0, 1], [1, 0], None])
async def test_FR_132_two_children_side_by_side_wait_for_approvals(order: list[int] | None):
    """Both verdicts in one message (None), or one after the other."""
    till = Till()
    children = [llm(f"c{n}", pay(n + 1), f"paid {n}", tools=[till.tool]) for n in range(2)]
    boss = llm("boss", [ask("c0"), ask("c1")], "done", tools=[*map(AgentTool, children)])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    ids = {e.author: requested([e])[0] for e in got.events if requested([e])}
    if order is None:
        got = await app.ask(verdicts(list(ids.values())), session="s1")
        assert results(got.events) == [{"result": "paid 0"}, {"result": "paid 1"}]
    else:
        for n in order:
            got = await app.ask(verdicts([ids[f"c{n}"]]), session="s1")
            assert results(got.events) == [{"result": f"paid {n}"}]
            assert got.outcome.status == ("paused" if n == order[0] else "finished")
    assert (sorted(till.paid), got.text, len(model(boss).requests)) == ([1, 2], "done", 2)


async def test_FR_118_the_same_agent_twice_each_verdict_belongs_to_its_own_call():
    till = Till()
    child = llm("child", pay(1), pay(2), "declined", "paid", tools=[till.tool])
    app = App(llm("boss", [ask("child", "a"), ask("child", "b")], "done", tools=[AgentTool(child)]))
    got = await app.ask("hi", session="s1")
    asked = {e.isolation_scope: requested([e])[0] for e in got.events if requested([e])}
    got = await app.ask(verdicts([asked["a"]], confirmed=False), session="s1")
    assert (results(got.events), till.paid) == ([{"result": "declined"}], [])
    got = await app.ask(verdicts([asked["b"]]), session="s1")
    assert (results(got.events), len(till.paid), got.text) == ([{"result": "paid"}], 1, "done")


async def test_FR_118_the_call_of_an_agent_tool_may_need_an_approval_and_so_may_calls_inside():
    till = Till()
    child = llm("child", pay(7), "paid it", tools=[till.tool])
    boss = llm("boss", ask("child"), "done", tools=[confirm(AgentTool(child))])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    assert (got.outcome.status, model(child).requests) == ("paused", [])
    got = await app.ask(verdicts(requested(got.events)), session="s1")
    assert (got.outcome.status, till.paid) == ("paused", [])
    assert [e.author for e in got.events] == ["child"], "now the call inside is asked about"
    got = await app.ask(verdicts(requested(got.events)), session="s1")
    assert (got.outcome.status, till.paid, got.text) == ("finished", [7], "done")
    assert results(got.events) == [{"result": "paid it"}]
    assert len(model(child).requests) == 2, "the child was not begun anew"
    assert "paid it" in model(boss).prompt()[-1]


async def test_FR_118_a_declined_agent_tool_does_not_run_its_agent():
    child = llm("child")
    boss = llm("boss", ask("child"), "as you wish", tools=[confirm(AgentTool(child))])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    got = await app.ask(verdicts(requested(got.events), confirmed=False), session="s1")
    assert (got.text, model(child).requests) == ("as you wish", [])


@pytest.mark.parametrize("mode", ["single_turn", "task"])
async def test_core_111_a_sub_agent_that_is_called_waits_for_an_approval(mode: Any):
    till = Till()
    end = call("finish_task", {"result": "paid it"}) if mode == "task" else "paid it"
    child = llm("child", pay(7), end, tools=[till.tool], mode=mode)
    boss = llm("boss", ask("child"), "done", sub_agents=[child])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    assert (got.outcome.status, len(model(boss).requests)) == ("paused", 1)
    got = await app.ask(verdicts(requested(got.events)), session="s1")
    assert (till.paid, got.text, results(got.events)[-1]) == ([7], "done", {"result": "paid it"})


async def test_core_111_text_to_a_task_that_waits_for_an_approval_leaves_the_request_open():
    till = Till()
    child = llm("child", pay(7), "please decide", call("finish_task", {"result": "ok"}), tools=[till.tool], mode="task")
    app = App(llm("boss", ask("child"), "done", sub_agents=[child]))
    first = await app.ask("hi", session="s1")
    assert (await app.ask("why?", session="s1")).text == "please decide"
    got = await app.ask(verdicts(requested(first.events)), session="s1")
    assert (till.paid, got.text) == ([7], "done")


async def test_section_4_6_a_tool_inside_a_child_may_ask_for_an_input():
    def order(ctx: ToolContext) -> dict[str, Any]:
        """Order."""
        if ctx.input is None:
            ctx.request_input("How many?")
            return {"status": "asked"}
        return {"ordered": ctx.input}

    child = llm("child", call("order"), "ordered", tools=[order])
    middle = llm("middle", ask("child"), "middle", tools=[AgentTool(child)])
    app = App(llm("boss", ask("middle"), "done", tools=[AgentTool(middle)]))
    got = await app.ask("hi", session="s1")
    (id,) = requested(got.events, "adk_request_input")
    got = await app.ask(said(id, "adk_request_input", {"response": 3}), session="s1")
    assert (got.text, results(got.events)) == ("done", [{"result": "middle"}])
    assert model(child).prompt()[-1] == "user: result order {'ordered': 3}"


# ---- a run that died


class Dying(MemorySessions):
    """Fails from the n-th append on, as a machine that went away would, until it is back."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left -= 1
        if self.left <= 0:
            raise OSError("gone")
        return await super().append(session, event, claim=claim, strict=strict)


@pytest.mark.parametrize("at", range(2, 6))
async def test_DESIGN_7_a_run_that_died_after_the_verdict_goes_on_and_pays_at_most_once(serve: Serve, at: int):
    """Events after the verdict: the result, child says, boss's result, boss says."""
    till = Till()
    child = llm("child", pay(7, "p"), tools=[till.tool])
    boss = llm("boss", ask("child", "c"), tools=[AgentTool(child)])
    store = Dying(1000)
    async with serve(boss, stores=Stores(store)) as talk:
        (id,) = [p["functionCall"]["id"] for e in await talk.run("hi") for p in e["content"]["parts"] if ASK in str(p)]
        before = len((await talk.stored())["events"])
        store.left = at
        model(child).steps[:], model(boss).steps[:] = ["child says"], ["done"]
        verdict = {
            "role": "user",
            "parts": [{"functionResponse": {"id": id, "name": ASK, "response": {"confirmed": True}}}],
        }
        await talk.sse(verdict)
        events = (await talk.stored())["events"][before:]
        assert len(events) == at - 1
        store.left = 1000
        model(child).steps[:] = ["child says"][len(events) > 2 :]
        model(boss).steps[:] = ["done"]
        got = await talk.run(None, invocationId=events[0]["invocationId"])
        events = (await talk.stored())["events"][before:]
    assert (till.paid, texts(got)) == ([7], ["done"])
    assert [e["author"] for e in events] == ["user", "child", "child", "boss", "boss"]
    assert ("interrupted" in str(events[1])) == (at == 2), "what had no stored result is not paid again"
