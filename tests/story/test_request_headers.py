"""Headers for a model's provider that depend on who asks: RequestHeadersPlugin, and callbacks that do the same."""

import pytest
from msgspec import structs

from polyport import App, LlmAgent
from polyport.data.model import GenerateConfig, ModelRequest
from polyport.errors import AgentError
from polyport.plugins.request_headers import RequestHeadersPlugin
from polyport.ports.agent import CallbackContext
from polyport.testing import ScriptedModel


def sent(model: ScriptedModel) -> list[dict[str, str]]:
    return [request.config.headers for request in model.requests]


async def test_headers_are_made_for_each_user():
    model = ScriptedModel("one", "two")
    agent = LlmAgent(name="a", model=model, config=GenerateConfig(headers={"x-tenant": "none", "x-app": "1"}))

    def headers(ctx: CallbackContext) -> dict[str, str]:
        return {"X-Tenant": ctx.user_id}

    async with App(agent, plugins=[RequestHeadersPlugin(headers)]) as app:
        await app.ask("hi", user="ann")
        await app.ask("hi", user="bob")
    assert sent(model) == [{"x-app": "1", "X-Tenant": "ann"}, {"x-app": "1", "X-Tenant": "bob"}]


async def test_headers_may_be_awaited_and_may_be_none():
    model = ScriptedModel("one")

    async def headers(ctx: CallbackContext) -> dict[str, str]:
        return {}

    async with App(LlmAgent(name="a", model=model), plugins=[RequestHeadersPlugin(headers)]) as app:
        await app.ask("hi")
    assert sent(model) == [{}]


@pytest.mark.parametrize(
    "pair", [("x-a", "tok\r\nHost: evil"), ("x-a", "tok\x00"), ("x a", "tok"), ("", "tok"), ("x:a", "tok")]
)
async def test_what_cannot_be_a_header_ends_the_run_and_is_not_shown(pair: tuple[str, str]):
    plugin = RequestHeadersPlugin(lambda ctx: dict([pair]))
    async with App(LlmAgent(name="a", model=ScriptedModel()), plugins=[plugin]) as app:
        with pytest.raises(AgentError, match="'request_headers'") as caught:
            await app.ask("hi")
    assert "tok" not in repr(caught.value)


async def test_a_callback_of_one_agent_does_the_same():
    model = ScriptedModel("one")

    def before_model(ctx: CallbackContext, request: ModelRequest) -> None:
        request.config = structs.replace(request.config, headers={"x-user": ctx.user_id})

    async with App(LlmAgent(name="a", model=model, before_model=before_model)) as app:
        await app.ask("hi", user="ann")
    assert sent(model) == [{"x-user": "ann"}]
