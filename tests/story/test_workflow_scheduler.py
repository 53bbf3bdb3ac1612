"""How nodes are run: side by side, again after a failure, within a time, and stopped together (spec core 4.4, 4.5)."""

from typing import Any

import anyio
import pytest

from polyport import App
from polyport.data.content import user_text
from polyport.data.run import RunRequest
from polyport.data.session import SessionKey
from polyport.errors import ConfigError, TimedOut
from polyport.workflow import START, Join, NodeContext, RetryPolicy, Workflow, node
from support.talk import Serve, texts

NOW = RetryPolicy(max_attempts=3, initial_s=0, jitter=0)


def flow(*edges: Any, **more: Any) -> Workflow:
    return Workflow("app", edges=edges, **more)


# ---- failures and cancellation


async def test_core_94_a_failing_node_stops_the_others_and_its_error_comes_out():
    stopped: list[str] = []
    begun = anyio.Event()

    async def hangs() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            stopped.append("hangs")
            raise

    async def fails() -> None:
        await begun.wait()
        raise KeyError("the reason")

    with pytest.raises(KeyError, match="the reason") as failure:
        await App(flow((START, (hangs, fails), Join("j")))).ask("hi")
    assert stopped == ["hangs"] and "in node 'app@1/fails@1'" in failure.value.__notes__


async def test_core_94_an_error_while_being_cancelled_is_told_and_the_cancel_is_no_success():
    begun = anyio.Event()

    async def bitter() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("own error")

    async def cancelled(node_function: Any) -> Any:
        app = App(flow((START, node_function)))
        async with app:
            run = await app.runs.start(
                RunRequest(key=SessionKey("app", "u", "s"), message=user_text("hi"), create_session=True)
            )
            await begun.wait()
            await app.runs.cancel(run.id, "enough")
            return await run.wait()

    assert "own error" in repr((await cancelled(bitter)).error)

    async def patient() -> None:
        begun.set()
        await anyio.sleep_forever()

    begun = anyio.Event()
    outcome = await cancelled(patient)
    assert (outcome.status, outcome.reason) == ("cancelled", "enough")


async def test_core_94_a_pending_retry_is_cancelled():
    attempts: list[int] = []
    failed = anyio.Event()

    async def flaky(ctx: NodeContext) -> None:
        attempts.append(ctx.attempt)
        failed.set()
        raise ValueError("again")

    async def fails() -> None:
        await failed.wait()
        raise KeyError("now")

    slow = RetryPolicy(max_attempts=5, initial_s=3600, max_s=3600, jitter=0)
    with pytest.raises(KeyError):
        await App(flow((START, (node(flaky, retry=slow), fails), Join("j")))).ask("hi")
    assert attempts == [1]


async def test_a_client_that_hangs_up_stops_all_nodes(serve: Serve):
    stopped = anyio.Event()

    async def hangs(ctx: NodeContext) -> None:
        await ctx.emit(ctx.event(output="begun"))
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with serve(flow((START, hangs))) as talk:
        async with talk.client.stream("POST", "/run_sse", json=talk.body("hi")) as response:
            async for _ in response.events():
                break
        with anyio.fail_after(30):
            await stopped.wait()


async def test_a_function_that_exits_fails_the_run_and_not_the_server(serve: Serve):
    def exits() -> None:
        raise SystemExit(3)

    async with serve(flow((START, exits))) as talk:
        assert "SystemExit" in (await talk.sse("hi"))[-1][1]["error"]
        assert (await talk.client.get("/health")).status == 200


async def test_ending_the_run_from_a_node_stops_the_graph():
    ran: list[str] = []

    def stop(ctx: NodeContext) -> str:
        ctx.end("seen enough")
        return "stopped"

    reply = await App(flow((START, stop, node(lambda: ran.append("next"), name="next")))).ask("hi")
    assert reply.outcome.status == "finished" and reply.outcome.reason == "seen enough" and ran == []


# ---- time


async def test_core_95_a_node_that_takes_too_long_is_stopped():
    stopped: list[bool] = []

    async def hangs() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    with pytest.raises(TimedOut, match="'hangs' took longer than 0 s"):
        await App(flow((START, node(hangs, timeout_s=0)))).ask("hi")

    def own() -> None:
        raise TimeoutError("of the function itself")

    with pytest.raises(TimeoutError, match="itself"):
        await App(flow((START, node(own, timeout_s=60)))).ask("hi")
    assert stopped == [True]


# ---- trying again


async def test_core_96_a_retry_gets_the_same_input_and_leaves_no_second_output():
    seen: list[Any] = []

    async def flaky(text: str, ctx: NodeContext) -> None:
        seen.append((text, ctx.attempt, ctx.state.get("tried")))
        ctx.state["tried"] = ctx.attempt
        await ctx.emit(ctx.event(output=f"try {ctx.attempt}"))
        if ctx.attempt < 3:
            raise ValueError("not yet")

    taken: list[Any] = []
    agent = flow((START, node(flaky, retry=NOW), taken.append))
    reply = await App(agent).ask("hi")
    assert seen == [("hi", 1, None), ("hi", 2, None), ("hi", 3, None)], "writes of a failed attempt are lost"
    assert taken == ["try 3"] and reply.outcome.status == "finished"


async def test_core_96_retries_are_used_up_chosen_and_not_for_bad_input():
    tried: list[str] = []

    async def fails(text: str) -> None:
        tried.append(text)
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        await App(flow((START, node(fails, retry=NOW)))).ask("hi")
    assert len(tried) == 3
    for chosen in (KeyError, (KeyError, OSError), lambda e: isinstance(e, KeyError)):
        tried.clear()
        policy = RetryPolicy(max_attempts=3, initial_s=0, retry_on=chosen)
        with pytest.raises(ValueError, match="always"):
            await App(flow((START, node(fails, retry=policy)))).ask("hi")
        assert len(tried) == 1
    tried.clear()
    with pytest.raises(Exception, match="input of node 'fails'"):
        await App(flow((START, node(fails, retry=NOW, input_schema=int)))).ask("hi")
    assert tried == []


async def test_core_96_an_output_that_does_not_fit_is_tried_again():
    numbers = iter(["x", "y", 3])
    agent = flow(
        (START, node(lambda: next(numbers), name="n", retry=NOW, output_schema=int), node(lambda n: n * 2, name="d"))
    )
    assert (await App(agent).ask("hi")).text == "6"


def test_section_4_5_waits_between_attempts():
    policy = RetryPolicy(initial_s=1, factor=2, max_s=5, jitter=0)
    assert [policy.wait_s(n, 0.5) for n in (1, 2, 3, 4, 9999)] == [1, 2, 4, 5, 5]
    assert RetryPolicy(initial_s=2, factor=0, jitter=0).wait_s(5, 0.1) == 2
    wide = RetryPolicy(initial_s=2, jitter=0.5)
    assert (wide.wait_s(1, 0), wide.wait_s(1, 0.5), wide.wait_s(1, 1)) == (1, 2, 3)
    assert not RetryPolicy(max_attempts=0).again(1, ValueError()) and not RetryPolicy(max_attempts=1).again(
        1, ValueError()
    )
    ready = RetryPolicy()
    assert (ready.max_attempts, ready.initial_s, ready.max_s, ready.factor, ready.jitter) == (5, 1, 60, 2, 1)
    with pytest.raises(ConfigError):
        RetryPolicy(jitter=2)


# ---- how many at once


class Gauge:
    """Nodes that note how many of them work at once, and in which order they begin."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    def node(self, name: str, **settings: Any) -> Any:
        async def work(ctx: NodeContext) -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(name)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            self.now -= 1
            if settings.get("retry") and ctx.attempt < 2:
                raise ValueError("again")
            return name

        return node(work, name=name, **settings)


@pytest.mark.parametrize("limit", [1, 2, 0])
async def test_core_97_no_more_nodes_work_at_once_than_allowed(limit: int):
    gauge = Gauge()
    names = [f"n{i}" for i in range(6)]
    nodes = tuple(gauge.node(n, retry=NOW if n == "n3" else None) for n in names)
    await App(flow((START, nodes, Join("j")), max_concurrency=limit)).ask("hi")
    assert gauge.most == (limit or 6)
    if limit == 1:
        assert gauge.order == ["n0", "n1", "n2", "n3", "n3", "n4", "n5"]


async def test_core_97_children_are_not_counted():
    gauge = Gauge()
    inner = gauge.node("inner")

    async def parent(ctx: NodeContext) -> Any:
        return await ctx.run_all([(inner, 1), (inner, 2), (inner, 3)])

    await App(flow((START, parent), max_concurrency=1)).ask("hi")
    assert gauge.most == 3


async def test_many_nodes_cost_little(serve: Serve):
    """A wide graph and a long one: no step looks at all steps before it."""
    nodes = [node(lambda x: x, name=f"n{i}") for i in range(150)]
    async with serve(flow((START, *nodes))) as talk:
        assert texts(await talk.run("hi")) == ["hi"]
    async with serve(flow((START, tuple(node(lambda x: x, name=f"w{i}") for i in range(150)), Join("j")))) as talk:
        assert len((await talk.run("hi"))[-1]["output"]) == 150
