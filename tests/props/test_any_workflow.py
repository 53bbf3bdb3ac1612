"""Any graph, stopped anywhere: it comes to what it would have come to, and repeats only what was not stored (spec core 4.7)."""

from collections import Counter
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport import App, Content, Event, LlmAgent, Part, tool
from polyport.data.content import FunctionResponse
from polyport.data.run import RunRequest
from polyport.data.session import SessionKey
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.workflow import DEFAULT, START, Join, NodeContext, Workflow, node, parallel

KINDS = ["plain", "ask", "again", "agent", "gated", "worker", "children", "crowd", "rounds"]
KEY = SessionKey("app", "user", "s")

Plan = list[Any]
"""Stages, one after another: a kind, or a list of such (side by side), or a tuple of stages (a workflow of its own)."""

stages = st.one_of(
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=3),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple),
)


class Dying(MemorySessions):
    """Fails once after each of some numbers of appends."""

    def __init__(self, deaths: list[int]) -> None:
        super().__init__()
        self.deaths = deaths
        self.left = deaths[0] if deaths else None

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise OSError("gone")
        return await super().append(session, event, claim=claim, strict=strict)

    @property
    def gone(self) -> bool:
        return self.left is not None and self.left < 0

    def back(self) -> None:
        if self.deaths:
            self.deaths.pop(0)
        self.left = self.deaths[0] if self.deaths else None


class Made:
    """The nodes of a plan, and how often each did its work."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.count = 0

    def flow(self, name: str, plan: Plan) -> Workflow:
        edges: list[Any] = []
        before: Any = START
        for stage in plan:
            if isinstance(stage, list):
                wide = tuple(self.node(kind) for kind in stage)
                join, after = Join(self.name("join")), self.node("plain")
                edges.append((before, wide, join, after))
                before = after
            else:
                one = self.flow(self.name("flow"), list(stage)) if isinstance(stage, tuple) else self.node(stage)
                edges.append((before, one))
                before = one
        return Workflow(name, edges=edges)

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def node(self, kind: str) -> Any:
        name = self.name(kind)

        def plain(value: Any) -> str:
            self.ran[f"{name}: {value}"] += 1
            return f"{name}({value})"

        async def ask(ctx: NodeContext) -> None:
            await ctx.request_input("?", interrupt_id=name)

        async def again(value: Any, ctx: NodeContext) -> str | None:
            if ctx.answer is None:
                await ctx.request_input("?", interrupt_id=name)
                return None
            return f"{name}({value}, {ctx.answer})"

        async def children(value: Any, ctx: NodeContext) -> str:
            first = await ctx.run_node(node(plain, name=f"{name}_a"), 1)
            second = await ctx.run_node(node(ask, name=f"{name}_b"))
            third = await ctx.run_all([(node(plain, name=f"{name}_c"), 3)])
            return f"{first} {second} {third}"

        if kind == "agent":
            return LlmAgent(name=name, model=ScriptedModel(*[lambda r, _: f"{name} says"] * 99))
        if kind == "gated":
            return self.gated(name)
        if kind == "worker":
            inner = parallel(node(plain, name=f"{name}_item"), name=f"{name}_each")
            return Workflow(name, edges=[(START, node(lambda: [1, 2], name=f"{name}_list"), inner)])
        if kind == "crowd":
            crowd = parallel(self.gated(f"{name}_pays"), name=f"{name}_each")
            return Workflow(name, edges=[(START, node(lambda: [1, 2], name=f"{name}_list"), crowd)])
        if kind == "rounds":
            return self.rounds(name)
        made = {"plain": plain, "ask": ask, "again": again, "children": children}[kind]
        return node(made, name=name, rerun_on_resume=True if kind in ("again", "children") else None)

    def rounds(self, name: str) -> Workflow:
        """Three rounds, with a question in each."""

        def step(ctx: NodeContext) -> str:
            self.ran[f"{name} {ctx.path}"] += 1
            return ctx.path.rpartition("@")[2]

        async def ask(value: str, ctx: NodeContext) -> str | None:
            if ctx.answer is None:
                await ctx.request_input("?", interrupt_id=f"{name}-{value}")
                return None
            return value

        first = node(step, name=f"{name}_step")
        question = node(ask, name=f"{name}_ask", rerun_on_resume=True)
        more, end = node(lambda: None, name=f"{name}_more"), node(lambda v: f"{name} {v}", name=f"{name}_end")
        edges = [(START, first, question), (question, {"3": end, DEFAULT: more}), (more, {DEFAULT: first})]
        return Workflow(name, edges=edges)

    def gated(self, name: str) -> LlmAgent:
        @tool(name=f"pay_{name}", require_confirmation=True, idempotent=True)
        def pay() -> str:
            """Pay."""
            self.ran[name] += 1
            return "paid"

        def step(request: Any, _: Any) -> Any:
            done = [r for c in request.contents for r in c.responses]
            if done and done[-1].response == {"result": "paid"}:
                return f"{name} paid"
            return call(f"pay_{name}", {}, f"{name}-{len(done)}")

        return LlmAgent(name=name, model=ScriptedModel(*[step] * 99), tools=[pay], include_contents="none")


def answers(events: list[Event]) -> list[Part]:
    """Answers to what is open, oldest first."""
    found: dict[str, Part] = {}
    for event in events:
        for part in event.content.parts if event.content is not None else ():
            asked, told = part.function_call, part.function_response
            if asked is not None and asked.id in event.long_running_tool_ids:
                value: dict[str, Any] = (
                    {"confirmed": True} if "confirmation" in asked.name else {"response": f"<{asked.id}>"}
                )
                found[asked.id] = Part(function_response=FunctionResponse(id=asked.id, name=asked.name, response=value))
            elif told is not None and event.author == "user":
                found.pop(told.id, None)
    return list(found.values())


async def finished(plan: Plan, deaths: list[int], together: bool) -> tuple[Any, Counter[str], int]:
    """What the plan comes to, how often its nodes worked, and how often the run died."""
    made, store = Made(), Dying(list(deaths))
    app = App(made.flow("app", plan), stores=Stores(store))
    died = 0
    async with app:
        request = RunRequest(key=KEY, message=Content(role="user", parts=[Part(text="go")]), create_session=True)
        for _ in range(300):
            outcome = await (await app.runs.start(request)).wait()
            if store.gone:
                died += 1
                store.back()
            elif outcome.error is not None:
                raise outcome.error
            elif outcome.status == "finished":
                return await result(app), made.ran, died
            events = (await store.get(KEY)).events
            run_id = events[0].invocation_id if events else ""
            parts = answers(events)
            if not events:
                continue
            if app.runs.can_go_on(await store.get(KEY), run_id):
                request = RunRequest(key=KEY, invocation_id=run_id)
            elif parts:
                request = RunRequest(key=KEY, message=Content(role="user", parts=parts if together else parts[:1]))
            else:
                return await result(app), made.ran, died
    raise AssertionError("it never ends")


async def result(app: App) -> Any:
    events = (await app.stores.sessions.get(KEY)).events
    said = [e for e in events if e.node_info is not None and "app@1" in e.node_info.output_for]
    return (said[-1].output or said[-1].text) if said else None


async def both(plan: Plan, deaths: list[int], together: bool) -> None:
    wanted, once, _ = await finished(plan, [], together)
    got, ran, died = await finished(plan, deaths, together)
    assert got == wanted
    assert set(ran) == set(once)
    for name, times in ran.items():
        at_once = 2 if name.endswith("_pays") else 1  # two items of a worker may both be at work when the run dies
        assert once[name] <= times <= once[name] + at_once * died, name


@settings(max_examples=60, deadline=None)
@given(st.lists(stages, min_size=1, max_size=4), st.lists(st.integers(0, 25), max_size=4), st.booleans())
def test_section_4_7_any_graph_stopped_anywhere_comes_to_the_same(plan: Plan, deaths: list[int], together: bool):
    anyio.run(both, plan, deaths, together)
