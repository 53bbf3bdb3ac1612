"""Fallback and Retrying around models, and headers per request (FR-083)."""

import logging
from typing import Any

import anyio
import pytest
from aiohttp import web
from msgspec import structs

from polyport import App, CallbackContext, GenerateConfig, LlmAgent, ModelRequest, ModelResponse, RunConfig
from polyport.data.content import model_text, user_text
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models.fallback import Fallback
from polyport.models.openai import OpenAIModel
from polyport.models.retry import Retrying, provider_fault
from polyport.seams import Seams
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Waits:
    """A sleep that only notes how long it was asked to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def failing(status: int = 503, **more: Any) -> ModelError:
    return ModelError(f"answered {status}", http_status=status, **more)


def breaks_off(*pieces: str, error: Exception) -> Any:
    async def step(request: ModelRequest, on_partial: Any) -> ModelResponse:
        for piece in pieces:
            await on_partial(ModelResponse(content=model_text(piece), partial=True))
        raise error

    return step


def two(first: Any, second: Any, **options: Any) -> tuple[Fallback, ScriptedModel, ScriptedModel]:
    one = ScriptedModel(*first, name="one")
    other = ScriptedModel(*second, name="other")
    return Fallback(one, other, **options), one, other


async def ask(model: Any, message: str = "hi", **options: Any) -> Any:
    return await App(LlmAgent(name="app", model=model)).ask(message, **options)


# ---- Fallback


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503, 529])
async def test_FR_083_the_next_model_answers_when_the_provider_fails(status: int, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "polyport.models")
    model, one, other = two([failing(status)], ["from other"])
    got = await ask(model)
    assert got.text == "from other"
    assert got.events[0].model_version == "other"
    assert (len(one.requests), len(other.requests)) == (1, 1)
    assert [r.model for r in (*one.requests, *other.requests)] == ["one", "other"], "each is asked by its own name"
    assert f"trying model other: one: answered {status}" in caplog.text


@pytest.mark.parametrize("error", [failing(400), failing(401), failing(404), BadRequest("x"), ValueError("x")])
async def test_FR_083_an_error_of_the_request_itself_stays_as_it_is(error: Exception):
    model, _, other = two([error], [])
    with pytest.raises(type(error)) as caught:
        await ask(model)
    assert caught.value is error
    assert other.requests == []


async def test_FR_083_after_the_first_piece_no_other_model_is_asked(serve: Serve):
    model, _, other = two([breaks_off("a", "b", "c", error=failing(503))], ["never"])
    async with serve(LlmAgent(name="app", model=model)) as talk:
        events = await talk.sse("hi", streaming=True)
    assert texts(events[:-1]) == ["a", "b", "c"], "nothing is sent twice"
    assert events[-1][0] == "error"
    assert "503" in str(events[-1][1])
    assert other.requests == []


async def test_FR_083_pieces_of_the_model_that_answers_are_streamed(serve: Serve):
    model, _, _ = two([breaks_off(error=failing(503))], [chunks("x", "y")])
    async with serve(LlmAgent(name="app", model=model)) as talk:
        events = await talk.sse("hi", streaming=True)
    assert texts(events) == ["x", "y", "xy"]


async def test_FR_083_when_all_fail_the_error_names_every_model_and_the_last_status(serve: Serve):
    model, _, _ = two([failing(429, retry_after_s=600.0)], [failing(529, code="overloaded", retry_after_s=7.0)])
    with pytest.raises(ModelError) as caught:
        await ask(model)
    error = caught.value
    assert str(error) == "none of the models answered: one: answered 429; other: answered 529"
    assert (error.http_status, error.code, error.retry_after_s) == (529, "overloaded", 7.0)
    model, _, _ = two([failing(503)], [RuntimeError("password=hunter2")])
    with pytest.raises(ModelError, match=r"one: answered 503; other: RuntimeError$"):
        await ask(model)


async def test_a_model_that_failed_comes_last_until_its_cooldown_is_over():
    clock = Clock()
    model, one, other = two(
        [failing(503), "one again", "one still"], ["o1", "o2"], cooldown_s=30, seams=Seams(clock=clock)
    )
    answers: list[str] = []
    for step in (0.0, 29.0, 1.0, 0.0):
        clock.time += step
        answers.append((await ask(model)).text)
    assert answers == ["o1", "o2", "one again", "one still"]
    one.check()
    other.check()


async def test_a_retry_after_makes_the_cooldown_longer_and_a_clock_set_back_ends_it():
    clock = Clock()
    model, _, _ = two([failing(429, retry_after_s=600.0), "back"], ["o1", "o2"], seams=Seams(clock=clock))
    assert (await ask(model)).text == "o1"
    clock.time += 599
    assert (await ask(model)).text == "o2"
    clock.time = 10.0
    assert (await ask(model)).text == "back"


async def test_models_that_are_cooling_down_are_better_than_none():
    clock = Clock()
    model, _, _ = two([failing(503), "one"], ["o1", failing(503)], seams=Seams(clock=clock))
    assert [(await ask(model)).text for _ in range(2)] == ["o1", "one"]


async def test_a_model_that_answered_again_is_well():
    a, b = ScriptedModel(failing(), failing(), name="a"), ScriptedModel(failing(), "b1", "b2", name="b")
    c = ScriptedModel("c1", failing(), name="c")
    model = Fallback(a, b, c, seams=Seams(clock=Clock()))
    assert [(await ask(model)).text for _ in range(3)] == ["c1", "b1", "b2"]
    assert len(a.requests) == 2, "b was well again, so a was not asked a third time"


async def test_headers_and_extra_are_for_the_first_model_unless_shared():
    config = GenerateConfig(headers={"x-key": "secret"}, extra={"provider": 1}, temperature=0.5)
    for share in (False, True):
        model, one, other = two([failing()], ["ok"], share_extras=share)
        await App(LlmAgent(name="app", model=model, config=config)).ask("hi")
        assert (one.requests[0].config.headers, one.requests[0].config.extra) == ({"x-key": "secret"}, {"provider": 1})
        got = other.requests[0].config
        assert (got.headers, got.extra) == (({"x-key": "secret"}, {"provider": 1}) if share else ({}, {}))
        assert got.temperature == 0.5


async def test_a_wrapper_passes_on_name_schema_and_close():
    closed: list[str] = []

    class Closes(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)
            if self.name == "a":
                raise OSError("a would not close")

    a, b = Closes(name="a", schema_with_tools=True), Closes(name="b", schema_with_tools=False)
    assert (Fallback(a, b).name, Fallback(a, b).schema_with_tools) == ("a", False)
    assert Fallback(a, Closes(schema_with_tools=True)).schema_with_tools
    assert (Retrying(a).name, Retrying(a).schema_with_tools, Retrying(b).schema_with_tools) == ("a", True, False)
    with pytest.raises(OSError, match="a would not close"):
        await Fallback(a, Retrying(b)).aclose()
    assert closed == ["a", "b"]


async def test_cancelling_is_no_failure():
    asked = anyio.Event()

    async def hangs(request: ModelRequest, on_partial: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    model, _, other = two([hangs, "next"], [])
    async with anyio.create_task_group() as group:
        group.start_soon(Retrying(model, 3).generate, ModelRequest(contents=[user_text("hi")]))
        await asked.wait()
        group.cancel_scope.cancel()
    assert other.requests == []
    assert (await ask(model)).text == "next", "nothing cools down"


async def test_tools_work_over_a_change_of_models():
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    model, one, other = two([call("add", {"a": 1, "b": 2}), failing()], ["It is 3."])
    got = await App(LlmAgent(name="app", model=model, tools=[add])).ask("1 + 2?")
    assert got.text == "It is 3."
    assert other.prompt() == one.prompt()
    assert other.prompt()[-1] == "user: result add {'result': 3}"


def test_names_of_models_are_resolved_and_wrong_settings_refused():
    assert Fallback("demo", "demo").name == "demo"
    assert Retrying("demo").name == "demo"
    with pytest.raises(ConfigError, match="no model is known as 'nonsense'"):
        Fallback("demo", "nonsense")
    with pytest.raises(ConfigError, match="at least one model"):
        Fallback()
    with pytest.raises(ConfigError, match="cooldown_s"):
        Fallback("demo", cooldown_s=-1)
    with pytest.raises(ConfigError, match="attempts of at least 1"):
        Retrying("demo", 0)


def test_what_is_the_providers_fault():
    assert provider_fault(ModelError("x", code="overloaded_error"))
    assert provider_fault(ModelError("x", code="UNAVAILABLE"))
    assert not provider_fault(ModelError("x", code="invalid_request_error"))
    assert not provider_fault(ModelError("x", code="authentication_error"))
    assert not provider_fault(ModelError("x", http_status=403, code="UNAVAILABLE"))


# ---- Retrying


async def test_FR_083_a_model_is_asked_again_with_growing_waits():
    waits = Waits()
    inner = ScriptedModel(failing(503), failing(429, retry_after_s=1.0), failing(0), "ok")
    model = Retrying(inner, 4, base_s=0.5, sleep=waits, seams=Seams(chance=lambda: 1.0))
    assert (await ask(model)).text == "ok"
    assert waits.seconds == [0.5, 1.0, 2.0], "doubling, but for the one that the provider asked for"


async def test_FR_083_waits_are_jittered_and_bounded():
    waits = Waits()
    inner = ScriptedModel(*[failing()] * 4, "ok")
    model = Retrying(inner, 5, base_s=4.0, max_wait_s=10.0, sleep=waits, seams=Seams(chance=lambda: 0.0))
    await ask(model)
    assert waits.seconds == [2.0, 4.0, 5.0, 5.0]


async def test_FR_083_a_long_retry_after_surfaces_at_once_and_attempts_are_bounded():
    waits = Waits()
    inner = ScriptedModel(failing(429, retry_after_s=600.0))
    with pytest.raises(ModelError, match="answered 429"):
        await ask(Retrying(inner, 3, sleep=waits))
    assert waits.seconds == []
    inner = ScriptedModel(failing(), failing(), failing(500))
    with pytest.raises(ModelError, match="answered 500"):
        await ask(Retrying(inner, 3, sleep=waits))
    assert len(waits.seconds) == 2


async def test_FR_083_nothing_is_asked_again_after_a_piece_or_for_a_bad_request(serve: Serve):
    waits = Waits()
    inner = ScriptedModel(breaks_off("a", error=failing(503)), failing(400))
    async with serve(LlmAgent(name="app", model=Retrying(inner, 3, sleep=waits))) as talk:
        events = await talk.sse("hi", streaming=True)
        assert texts(events[:-1]) == ["a"]
        assert "503" in str(events[-1])
        assert "400" in str((await talk.sse("hi", streaming=True))[-1])
    assert waits.seconds == []


async def test_what_is_tried_again_may_be_chosen():
    waits = Waits()
    model = Retrying(ScriptedModel(OSError("gone"), "ok"), sleep=waits, again=lambda e: isinstance(e, OSError))
    assert (await ask(model)).text == "ok"
    fallback, _, _ = two([OSError("gone")], ["ok"], next_for=lambda e: isinstance(e, OSError))
    assert (await ask(fallback)).text == "ok"


async def test_a_fallback_of_retrying_models_tries_each_to_the_end():
    waits = Waits()
    one, other = ScriptedModel(failing(), failing(), name="one"), ScriptedModel(failing(), "ok", name="other")
    model = Fallback(Retrying(one, 2, sleep=waits), Retrying(other, 2, sleep=waits))
    assert (await ask(model, config=RunConfig(streaming=True))).text == "ok"
    assert (len(one.requests), len(other.requests)) == (2, 2)


# ---- headers per request


def by_user(ctx: CallbackContext, request: ModelRequest) -> None:
    headers = {**request.config.headers, "x-user-key": f"key of {ctx.user_id}"}
    request.config = structs.replace(request.config, headers=headers)


def unless_eve(ctx: CallbackContext, request: ModelRequest) -> None:
    if ctx.user_id != "eve":
        by_user(ctx, request)


async def test_a_before_model_hook_sets_headers_per_user():
    config = GenerateConfig(headers={"x-app": "1"})
    model = ScriptedModel("a", "b", "c")
    agent = LlmAgent(name="app", model=model, config=config, before_model=by_user)
    async with App(agent) as app:
        for user in ("ann", "bob", "ann"):
            await app.ask("hi", user=user)
    assert [r.config.headers for r in model.requests] == [
        {"x-app": "1", "x-user-key": f"key of {user}"} for user in ("ann", "bob", "ann")
    ]
    assert config.headers == {"x-app": "1"}, "the agent itself is not changed"


async def test_headers_per_user_reach_the_provider_and_no_other_user():
    seen: list[tuple[str | None, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers.get("Authorization"), request.headers.get("x-user-key")))
        message = {"role": "assistant", "content": "ok"}
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            }
        )

    server = web.Application()
    server.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        model = OpenAIModel("m", api_key="sk-shared-key", base_url=f"http://{host}:{port}/v1")
        agent = LlmAgent(name="app", model=Fallback(model), before_model=unless_eve)
        async with App(agent) as app:
            for user in ("ann", "eve", "bob"):
                assert (await app.ask("hi", user=user)).text == "ok"
    finally:
        await runner.cleanup()
    assert seen == [("Bearer sk-shared-key", key) for key in ("key of ann", None, "key of bob")]
