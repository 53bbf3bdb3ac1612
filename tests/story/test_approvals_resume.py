"""Approvals where the run goes on: in trees of agents, after a restart, from another process, after a crash, under attack."""

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import Agent, App, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, make_tool
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call, connect
from polyport.tools.agent_tool import AgentTool
from polyport.tools.confirm import confirm
from support.approvals import Till, approve, on, requests, together
from support.processes import Serving
from support.talk import Serve, Talk, texts


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


def asks(name: str, amount: int, *then: Any, till: Till, **fields: Any) -> LlmAgent:
    """An agent that wants to pay, and then says `then`."""
    return llm(name, call("pay", {"amount": amount}, f"c-{name}"), *then, tools=till.tools, **fields)


def model(agent: Agent) -> ScriptedModel:
    assert isinstance(agent, LlmAgent) and isinstance(agent.model, ScriptedModel)
    return agent.model


def spoken(events: list[Any]) -> list[tuple[str, str]]:
    return [(e["author"], t) for e in events for t in texts([e])]


# ---- trees of agents


@pytest.mark.parametrize("with_id", [False, True])
async def test_FR_122_FR_125_a_request_of_a_sub_agent_is_carried_out_by_it(serve: Serve, with_id: bool):
    till = Till()
    child = asks("child", 5, "The child has paid.", till=till)
    root = llm("app", call("transfer_to_agent", {"agent_name": "child"}), sub_agents=[child])
    async with serve(root) as talk:
        first = await talk.run("pay")
        (request,) = requests(first)
        more = {"invocationId": first[0]["invocationId"]} if with_id else {}
        done = await talk.run(approve(request), **more)
        assert [e["author"] for e in done] == ["child", "child"] and texts(done) == ["The child has paid."]
        assert {e["invocationId"] for e in done} == {first[0]["invocationId"]}
    assert till.paid == [5] and len(model(root).requests) == 1
    assert model(child).prompt()[-1] == "user: result pay {'paid': 5}"


async def test_FR_122_also_when_the_conversation_has_gone_back_to_the_root(serve: Serve):
    till = Till()
    child = asks("child", 5, "The child has paid.", till=till, disallow_transfer_to_parent=True)
    root = llm("app", call("transfer_to_agent", {"agent_name": "child"}), "I am the root.", sub_agents=[child])
    async with serve(root) as talk:
        (request,) = requests(await talk.run("pay"))
        assert spoken(await talk.run("hello?")) == [("app", "I am the root.")]
        assert spoken(await talk.run(approve(request))) == [("child", "The child has paid.")]
    assert till.paid == [5]


async def test_FR_123_FR_124_a_sequence_goes_on_where_it_asked_and_runs_to_its_end(serve: Serve):
    till = Till()
    planner, executor = asks("planner", 1, "planned", till=till), asks("executor", 2, "executed", till=till)
    validator = llm("validator", "valid")
    async with serve(SequentialAgent(name="app", sub_agents=[planner, executor, validator])) as talk:
        (one,) = requests(await talk.run("go"))
        second = await talk.run(approve(one))
        assert spoken(second) == [("planner", "planned")]
        (two,) = requests(second)
        assert spoken(await talk.run(approve(two))) == [("executor", "executed"), ("validator", "valid")]
    assert till.paid == [1, 2]
    assert [len(model(a).requests) for a in (planner, executor, validator)] == [2, 2, 1]


async def test_FR_123_text_beside_an_approval_does_not_begin_the_sequence_anew(serve: Serve):
    till = Till()
    planner, executor = llm("planner", "planned"), asks("executor", 2, "executed", till=till)
    async with serve(SequentialAgent(name="app", sub_agents=[planner, executor])) as talk:
        (request,) = requests(await talk.run("go"))
        message = together(approve(request), {"parts": [{"text": "and be quick"}]})
        assert spoken(await talk.run(message)) == [("executor", "executed")]
    assert till.paid == [2] and any("be quick" in line for line in model(executor).prompt())


async def test_FR_135_a_sequence_in_a_sequence(serve: Serve):
    till = Till()
    inner = SequentialAgent(name="inner", sub_agents=[llm("a", "a"), asks("b", 5, "b", till=till), llm("c", "c")])
    async with serve(
        SequentialAgent(name="app", sub_agents=[llm("before", "before"), inner, llm("after", "after")])
    ) as talk:
        (request,) = requests(await talk.run("go"))
        assert texts(await talk.run(approve(request))) == ["b", "c", "after"]
    assert till.paid == [5]


async def test_a_declined_call_lets_the_sequence_go_on(serve: Serve):
    till = Till()
    first = asks("first", 5, "I was told not to.", till=till)
    async with serve(SequentialAgent(name="app", sub_agents=[first, llm("last", "last")])) as talk:
        (request,) = requests(await talk.run("go"))
        assert texts(await talk.run(approve(request, False))) == ["I was told not to.", "last"]
    assert till.paid == []


async def test_a_loop_goes_on_in_its_round_and_does_not_carry_out_a_call_twice(serve: Serve):
    till = Till()
    one, two = llm("one", "1", "1 again"), asks("two", 5, "2", "2 again", till=till)
    async with serve(LoopAgent(name="app", sub_agents=[one, two], max_iterations=2)) as talk:
        (request,) = requests(await talk.run("go"))
        assert texts(await talk.run(approve(request))) == ["2", "1 again", "2 again"]
    assert till.paid == [5]


async def test_a_hand_over_that_had_to_wait_is_done_once(serve: Serve):
    till = Till()
    helper = llm("helper", "helped")
    both = [call("pay", {"amount": 5}, "c1"), call("transfer_to_agent", {"agent_name": "helper"}, "c2")]
    first = llm("first", both, "second round", tools=till.tools, sub_agents=[helper])
    async with serve(LoopAgent(name="app", sub_agents=[first], max_iterations=2)) as talk:
        (request,) = requests(await talk.run("go"))
        assert spoken(await talk.run(approve(request))) == [("helper", "helped"), ("first", "second round")]
    assert till.paid == [5]


async def test_parallel_branches_ask_together_and_are_answered_together(serve: Serve):
    till = Till()
    both = ParallelAgent(name="both", sub_agents=[asks("p", 1, "p", till=till), asks("q", 2, "q", till=till)])
    async with serve(SequentialAgent(name="app", sub_agents=[both, llm("last", "last")])) as talk:
        asked = requests(await talk.run("go"))
        assert len(asked) == 2
        done = await talk.run(together(*map(approve, asked)))
        assert sorted(texts(done)) == ["last", "p", "q"] and texts(done)[-1] == "last"
        assert {e["branch"] for e in done if e["author"] == "p"} == {"both.p"}
    assert sorted(till.paid) == [1, 2]


@pytest.mark.parametrize("first", ["p", "q"])
async def test_parallel_branches_are_answered_apart(serve: Serve, first: str):
    till = Till()
    both = ParallelAgent(name="both", sub_agents=[asks("p", 1, "p", till=till), asks("q", 2, "q", till=till)])
    async with serve(SequentialAgent(name="app", sub_agents=[both, llm("last", "last")])) as talk:
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(await talk.run("go"))}
        assert texts(await talk.run(approve(asked.pop(f"c-{first}")))) == [first]
        (rest,) = asked.values()
        assert len(texts(await talk.run(approve(rest)))) == 2
    assert sorted(till.paid) == [1, 2]


# ---- agents as tools


async def test_a_request_inside_an_agent_used_as_a_tool_pauses_the_caller_too(serve: Serve):
    till = Till()
    buyer = asks("buyer", 5, "bought", till=till)
    root = llm("app", call("buyer", {"request": "buy"}, "t1"), "It is bought.", tools=[AgentTool(buyer)])
    async with serve(root) as talk:
        (request,) = requests(await talk.run("go"))
        assert till.paid == [] and len(model(root).requests) == 1
        assert texts(await talk.run(approve(request)))[-1] == "It is bought."
    assert till.paid == [5]
    assert model(root).prompt()[-1] == "user: result buyer {'result': 'bought'}"


@pytest.mark.parametrize("order", ["together", "own first", "inner first"])
async def test_FR_132_a_call_of_its_own_and_one_inside_an_agent_tool_wait_side_by_side(serve: Serve, order: str):
    till = Till()
    buyer = asks("buyer", 5, "bought", till=till)
    both = [call("pay", {"amount": 1}, "own"), call("buyer", {"request": "buy"}, "t1")]
    root = llm("app", both, "all done", tools=[*till.tools, AgentTool(buyer)])
    async with serve(root) as talk:
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(await talk.run("go"))}
        assert set(asked) == {"own", "c-buyer"}
        own, inner = approve(asked["own"]), approve(asked["c-buyer"])
        if order == "together":
            done = await talk.run(together(own, inner))
        else:
            half = await talk.run(own if order == "own first" else inner)
            assert "all done" not in texts(half) and len(model(root).requests) == 1
            assert "interrupted" not in str(half), "what waits for a human was not at work"
            done = await talk.run(inner if order == "own first" else own)
        assert texts(done)[-1] == "all done"
    assert sorted(till.paid) == [1, 5]
    assert model(root).prompt()[-1] == "user: result pay {'paid': 1} | result buyer {'result': 'bought'}"


async def test_an_agent_tool_may_need_an_approval_itself_and_its_agent_another_one(serve: Serve):
    till = Till()
    buyer = asks("buyer", 5, "bought", till=till)
    root = llm("app", call("buyer", {"request": "buy"}, "t1"), "It is bought.", tools=[confirm(AgentTool(buyer))])
    async with serve(root) as talk:
        (outer,) = requests(await talk.run("go"))
        assert outer["args"]["originalFunctionCall"]["name"] == "buyer" and model(buyer).requests == []
        (inner,) = requests(await talk.run(approve(outer)))
        assert inner["args"]["originalFunctionCall"]["name"] == "pay" and till.paid == []
        assert texts(await talk.run(approve(inner)))[-1] == "It is bought."
    assert till.paid == [5] and len(model(buyer).requests) == 2


async def test_an_agent_tool_that_is_at_work_is_not_lost_when_another_call_is_approved(serve: Serve):
    till = Till()
    buyer = asks("buyer", 5, "bought", till=till)
    both = [call("buyer", {"request": "buy"}, "t1"), call("pay", {"amount": 1}, "own")]
    root = llm("app", both, "all done", tools=[*till.tools, confirm(AgentTool(buyer))])
    async with serve(root) as talk:
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(await talk.run("go"))}
        (inner,) = requests(await talk.run(approve(asked["t1"])))
        half = await talk.run(approve(asked["own"]))
        assert "interrupted" not in str(half) and len(model(root).requests) == 1
        assert texts(await talk.run(approve(inner)))[-1] == "all done"
    assert till.paid == [1, 5]


# ---- restarts, other processes


@pytest.mark.parametrize("secret", ["", "a secret of this app"])
@pytest.mark.parametrize("confirmed", [True, False])
async def test_FR_121_FR_134_FR_138_after_a_restart(tmp_path: Path, confirmed: bool, secret: str):
    till, database = Till(), f"sqlite:///{tmp_path}/x.db"
    first, _ = on(till, call("pay", {"amount": 5}), database=database, secret=secret)
    async with connect(first) as client:
        talk = Talk(client, "app", first)
        await talk.create()
        (request,) = requests(await talk.run("pay"))
    second, script = on(till, "understood", database=database, secret=secret)
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        assert texts(await talk.run(approve(request, confirmed, payload={"reason": "over budget"}))) == ["understood"]
    assert till.paid == ([5] if confirmed else [])
    assert ("over budget" in script.prompt()[-1]) is not confirmed


async def test_another_process_on_the_same_database_carries_it_out_and_only_one_of_two(tmp_path: Path):
    """Two servers get the same answer at the same time."""
    till, database = Till(), f"sqlite:///{tmp_path}/x.db"
    first, _ = on(till, call("pay", {"amount": 5}), "one", database=database)
    second, _ = on(till, "two", database=database)
    statuses: list[int] = []
    async with connect(first) as one, connect(second) as two:
        here, there = Talk(one, "app", first), Talk(two, "app", second)
        await here.create()
        (request,) = requests(await here.run("pay"))

        async def send(talk: Talk) -> None:
            statuses.append((await talk.client.post("/run", json=talk.body(approve(request)))).status)

        async with anyio.create_task_group() as group:
            group.start_soon(send, here)
            group.start_soon(send, there)
    assert sorted(statuses) == [200, 409]
    assert till.paid == [5]


class Meeting(MemorySessions):
    """Readers meet: each sees the session before any of them writes."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = 0
        self._all_here = anyio.Event()

    def expect(self, readers: int) -> None:
        self.expected, self._all_here = readers, anyio.Event()

    async def get(self, key: Any, **options: Any) -> Any:
        session = await super().get(key, **options)
        if self.expected:
            self.expected -= 1
            if not self.expected:
                self._all_here.set()
            await self._all_here.wait()
        return session


async def test_two_servers_that_read_the_same_session_before_either_writes():
    """Both find the request open; the store lets one answer in."""
    till, store = Till(), Meeting()
    first = App(llm("app", call("pay", {"amount": 5}), "one", tools=till.tools), stores=Stores(store))
    second = App(llm("app", "two", tools=till.tools), stores=Stores(store))
    outcomes: list[tuple[int, str]] = []
    async with connect(first) as one, connect(second) as two:
        here, there = Talk(one, "app", first), Talk(two, "app", second)
        await here.create()
        (request,) = requests(await here.run("pay"))
        store.expect(2)

        async def send(talk: Talk) -> None:
            response = await talk.client.post("/run", json=talk.body(approve(request)))
            outcomes.append((response.status, response.text))

        async with anyio.create_task_group() as group:
            group.start_soon(send, here)
            group.start_soon(send, there)
    assert sorted(status for status, _ in outcomes) == [200, 409]
    assert "answered already" in next(text for status, text in outcomes if status == 409)
    assert till.paid == [5]


async def test_an_answer_is_not_lost_when_the_session_changes_in_that_moment():
    """Somebody patches the state between the check and the commit."""
    till, store = Till(), Meeting()
    agent = llm("app", call("pay", {"amount": 5}), "paid", tools=till.tools)
    app = App(agent, stores=Stores(store))
    async with connect(app) as client:
        talk = Talk(client, "app", app)
        await talk.create()
        (request,) = requests(await talk.run("pay"))
        store.expect(2)
        done: list[Any] = []

        async def send() -> None:
            done.extend(await talk.run(approve(request)))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            patched = await client.patch(talk.path, json={"stateDelta": {"k": 1}})
            assert patched.status == 200
        assert texts(done) == ["paid"] and (await talk.stored())["state"]["k"] == 1
    assert till.paid == [5]


@pytest.mark.parametrize("on_busy", ["interrupt", "queue", "reject"])
async def test_a_second_answer_does_not_stop_the_run_that_carries_out_the_first(serve: Serve, on_busy: Any):
    begun, go, ended, first = anyio.Event(), anyio.Event(), list[str](), list[Any]()

    async def wait() -> str:
        """Wait."""
        begun.set()
        await go.wait()
        ended.append("x")
        return "waited"

    agent = llm("app", call("wait"), "done", tools=[make_tool(wait, require_confirmation=True)])
    async with serve(agent, limits=Limits(on_busy=on_busy)) as talk, anyio.create_task_group() as group:
        (request,) = requests(await talk.run("go"))

        async def send() -> None:
            first.extend(await talk.run(approve(request)))

        group.start_soon(send)
        await begun.wait()
        again = await talk.client.post("/run", json=talk.body(approve(request)))
        assert again.status == 409 and "answered already" in again.text
        go.set()
    assert texts(first) == ["done"] and ended == ["x"]


SERVER = '''
from pathlib import Path
import os
from polyport import LlmAgent, tool
from polyport.testing import ScriptedModel, call

HERE = Path(__file__).parent

@tool(require_confirmation=True)
def wipe(disk: str) -> dict:
    """Wipe a disk."""
    with open(HERE / "log.txt", "a") as log:
        log.write(f"wiped {disk} in {os.getpid()}\\n")
    if (HERE / "hang").exists():
        (HERE / "hang").read_text()
    return {"wiped": disk}

async def model(request, on_partial):
    last = request.contents[-1]
    return f"Done: {last.responses[0].response}" if last.responses else call("wipe", {"disk": "c"})

root_agent = LlmAgent(name="bot", model=ScriptedModel(*[model] * 9), tools=[wipe])
'''


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(SERVER)
    return tmp_path / "bot"


def post(url: str, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def body(message: Any, **more: Any) -> dict[str, Any]:
    if isinstance(message, str):
        message = {"role": "user", "parts": [{"text": message}]}
    return {"appName": "bot", "userId": "u", "sessionId": "s", "newMessage": message, **more}


def test_a_server_that_is_killed_while_the_approval_is_open_carries_it_out_once_after_its_restart(bot: Path):
    database = f"sqlite:///{bot}/data.db"
    with Serving(str(bot), "--db", database) as serving:
        assert post(serving.url, "/apps/bot/users/u/sessions/s", {})[0] == 200
        status, events = post(serving.url, "/run", body("wipe"))
        (request,) = requests(events)
        os.killpg(serving.pid, signal.SIGKILL)
        serving.wait()
    assert not (bot / "log.txt").exists()
    with Serving(str(bot), "--db", database) as serving:
        status, events = post(serving.url, "/run", body(approve(request)))
        assert (status, texts(events)) == (200, ["Done: {'wiped': 'c'}"])
        status, error = post(serving.url, "/run", body(approve(request)))
        assert status == 409 and request["id"] in error["error"]
    assert (bot / "log.txt").read_text().count("wiped") == 1


def test_a_server_that_is_killed_in_the_middle_of_an_approved_call_does_not_carry_it_out_again(bot: Path):
    database = f"sqlite:///{bot}/data.db"
    os.mkfifo(bot / "hang")
    with Serving(str(bot), "--db", database) as serving:
        assert post(serving.url, "/apps/bot/users/u/sessions/s", {})[0] == 200
        _, events = post(serving.url, "/run", body("wipe"))
        (request,) = requests(events)
        assert post(serving.url, "/run?detach=true", body(approve(request)))[0] == 202
        with (bot / "hang").open("w"):  # the tool is at work once it reads
            os.killpg(serving.pid, signal.SIGKILL)
            serving.wait()
    assert (bot / "log.txt").read_text().count("wiped") == 1
    (bot / "hang").unlink()
    with Serving(str(bot), "--db", database) as serving:
        status, error = post(serving.url, "/run", body(approve(request)))
        assert status == 409 and "invocationId" in error["error"], "an approval is used up once it was taken in"
        again = {**body(""), "invocationId": events[0]["invocationId"]}
        del again["newMessage"]
        status, resumed = post(serving.url, "/run", again)
        assert status == 200 and "interrupted" in texts(resumed)[0]
    assert (bot / "log.txt").read_text().count("wiped") == 1


# ---- a run that died


class Dying(MemorySessions):
    """Fails from the n-th append on, until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**6

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left -= 1
        if self.left <= 0:
            raise OSError("gone")
        return await super().append(session, event, claim=claim, strict=strict)


async def resumed(talk: Talk, run_id: str) -> list[Any]:
    response = await talk.client.post("/run", json=talk.body(None, invocationId=run_id))
    assert response.status == 200, response.text
    return response.json()


async def test_DESIGN_7_died_between_the_responses_and_the_request_and_the_call_is_made_anew(
    serve: Serve, scripted: Any
):
    till, store = Till(), Dying()
    agent, script = scripted(
        call("pay", {"amount": 5}, "c1"), call("pay", {"amount": 5}, "c2"), "paid", tools=till.tools
    )
    async with serve(agent, stores=Stores(store)) as talk:
        store.left = 4  # the user, the call and its response are stored
        await talk.sse("pay")
        store.left = 10**6
        stored = (await talk.stored())["events"]
        assert len(stored) == 3 and requests(stored) == []
        (request,) = requests(await resumed(talk, stored[0]["invocationId"]))
        assert request["args"]["originalFunctionCall"]["id"] == "c2" and "interrupted" in script.prompt()[-1]
        again = await talk.client.post("/run", json=talk.body(None, invocationId=stored[0]["invocationId"]))
        assert again.status == 409 and "waits for an answer" in again.text
        assert texts(await talk.run(approve(request))) == ["paid"]
    assert till.paid == [5]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("confirmed", [True, False])
async def test_DESIGN_7_died_after_an_approved_call_and_before_its_response_was_stored(
    serve: Serve, scripted: Any, idempotent: bool, confirmed: bool
):
    till, store = Till(), Dying()
    agent, script = scripted(call("pay", {"amount": 5}, "c1"), "end", tools=[till.tool(idempotent=idempotent)])
    async with serve(agent, stores=Stores(store)) as talk:
        first = await talk.run("pay")
        (request,) = requests(first)
        store.left = 2  # the answer is stored, the response is not
        await talk.sse(approve(request, confirmed))
        assert till.paid == ([5] if confirmed else [])
        store.left = 10**6
        assert texts(await resumed(talk, first[0]["invocationId"])) == ["end"]
    assert till.paid == ([5, 5] if confirmed and idempotent else [5] if confirmed else [])
    told = script.prompt()[-1]
    assert ("rejected" in told) is not confirmed
    assert ("interrupted" in told) is (confirmed and not idempotent)


async def test_DESIGN_7_a_resumed_parallel_branch_keeps_waiting_for_its_own_answer(serve: Serve):
    till, store = Till(), Dying()
    branches = [asks("p", 1, "p", till=till), asks("q", 2, "q", till=till)]
    async with serve(ParallelAgent(name="app", sub_agents=branches), stores=Stores(store)) as talk:
        first = await talk.run("go")
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(first)}
        store.left = 2
        await talk.sse(approve(asked["c-p"]))
        store.left = 10**6
        assert texts(await resumed(talk, first[0]["invocationId"])) == ["p"]
        assert texts(await talk.run(approve(asked["c-q"]))) == ["q"]
    assert till.paid == [1, 2]


class Noticing(Dying):
    """Dies, and lets others wait for an event of an agent that is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[tuple[str, str], anyio.Event] = {}

    def has(self, agent: str, what: str) -> anyio.Event:
        return self.heard.setdefault((agent, what), anyio.Event())

    async def append(self, session: Any, event: Event, **options: Any) -> Event:
        stored = await super().append(session, event, **options)
        for response in event.responses:
            if "paid" in (response.response or {}):
                self.has(event.author, "paid").set()
        if event.text:
            self.has(event.author, event.text).set()
        return stored


async def test_DESIGN_7_a_resumed_branch_whose_step_is_half_answered_keeps_waiting(serve: Serve):
    till, store = Till(), Noticing()

    async def once_p_has_paid(request: Any, on_partial: Any) -> str:
        await store.has("p", "paid").wait()  # tools work in threads: either could be the first
        return "q"

    p = llm("p", [call("pay", {"amount": 1}, "a"), call("pay", {"amount": 2}, "b")], "p", tools=till.tools)
    both = ParallelAgent(name="both", sub_agents=[p, asks("q", 3, once_p_has_paid, "q", till=till)])
    async with serve(SequentialAgent(name="app", sub_agents=[both, llm("last", "last")]), stores=Stores(store)) as talk:
        first = await talk.run("go")
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(first)}
        store.left = 4  # the answers and both responses are stored, what q says then is not
        await talk.sse(together(approve(asked["a"]), approve(asked["c-q"])))
        store.left = 10**6
        assert texts(await resumed(talk, first[0]["invocationId"])) == ["q"], "p waits, so the last one does"
        assert texts(await talk.run(approve(asked["b"]))) == ["p", "last"]
    assert sorted(till.paid) == [1, 2, 3]


async def test_DESIGN_7_also_when_the_response_of_the_answered_half_is_what_was_lost(serve: Serve):
    till, store = Till(), Noticing()

    async def pay(amount: int) -> dict[str, int]:
        """Pay an amount."""
        if amount == 1:
            await store.has("q", "q").wait()
        return till.pay(amount)

    tools = [make_tool(pay, require_confirmation=True)]
    p = llm("p", [call("pay", {"amount": 1}, "a"), call("pay", {"amount": 2}, "b")], "p", tools=tools)
    both = ParallelAgent(name="both", sub_agents=[p, asks("q", 3, "q", till=till)])
    async with serve(SequentialAgent(name="app", sub_agents=[both, llm("last", "last")]), stores=Stores(store)) as talk:
        first = await talk.run("go")
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(first)}
        store.left = 4  # the answers, q's response and what q says; the response of p's first call is not
        await talk.sse(together(approve(asked["a"]), approve(asked["c-q"])))
        store.left = 10**6
        again = await talk.client.post("/run", json=talk.body(None, invocationId=first[0]["invocationId"]))
        assert again.status == 409 and "waits for an answer" in again.text
        assert texts(await talk.run(approve(asked["b"]))) == ["p", "last"]
    assert sorted(till.paid) == [1, 2, 3]
    lost, paid = model(p).requests[1].contents[-1].responses
    assert lost.response is not None and lost.response["interrupted"] is True and paid.response == {"paid": 2}


async def test_DESIGN_7_a_call_that_was_lost_does_not_hold_up_or_repeat_the_others_of_its_step(serve: Serve):
    """The run dies after the first call was carried out; nobody resumes it, but the second one is approved."""
    till, store = Till(), Dying()
    agent = llm("app", [call("pay", {"amount": 1}, "a"), call("pay", {"amount": 2}, "b")], "end", tools=till.tools)
    async with serve(agent, stores=Stores(store)) as talk:
        one, two = requests(await talk.run("go"))
        store.left = 2
        await talk.sse(approve(one))
        store.left = 10**6
        assert till.paid == [1]
        assert texts(await talk.run(approve(two))) == ["end"]
    assert till.paid == [1, 2]
    lost, paid = model(agent).requests[1].contents[-1].responses
    assert lost.response is not None and lost.response["interrupted"] is True and paid.response == {"paid": 2}


async def test_DESIGN_7_a_lost_call_beside_an_agent_tool_is_not_carried_out_again(serve: Serve):
    till, store = Till(), Dying()
    buyer = asks("buyer", 5, "bought", till=till)
    both = [call("pay", {"amount": 1}, "own"), call("buyer", {"request": "buy"}, "t1")]
    root = llm("app", both, "end", tools=[*till.tools, AgentTool(buyer)])
    async with serve(root, stores=Stores(store)) as talk:
        asked = {r["args"]["originalFunctionCall"]["id"]: r for r in requests(await talk.run("go"))}
        store.left = 2
        await talk.sse(approve(asked["own"]))
        store.left = 10**6
        assert till.paid == [1]
        assert texts(await talk.run(approve(asked["c-buyer"])))[-1] == "end"
    assert till.paid == [1, 5]
    lost, bought = model(root).requests[1].contents[-1].responses
    assert lost.response is not None and lost.response["interrupted"] is True
    assert bought.response == {"result": "bought"}


async def test_after_an_interrupted_execution_the_model_does_not_hear_that_the_call_still_waits(
    serve: Serve, scripted: Any
):
    till, store = Till(), Dying()
    agent, script = scripted(call("pay", {"amount": 5}, "c1"), "hm", tools=till.tools)
    async with serve(agent, stores=Stores(store)) as talk:
        (request,) = requests(await talk.run("pay"))
        store.left = 2
        await talk.sse(approve(request))
        store.left = 10**6
        assert texts(await talk.run("what now?")) == ["hm"]
    assert "No result of this call has been recorded" in script.prompt()[2]
