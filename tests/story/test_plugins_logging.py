"""LoggingPlugin: what is written, where it is cut, and that it changes nothing (spec core 7)."""

import logging
from typing import Any

import pytest
from msgspec import structs

from polyport import App, CallbackContext, Content, ModelRequest, Part
from polyport.data.content import Blob
from polyport.errors import ModelError
from polyport.plugins import LoggingPlugin
from polyport.testing import call, chunks
from support.talk import Serve

LOGGER = "polyport.plugins.logging"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the plugin said, without the run's id."""
    return [r.getMessage().split(" ", 1)[-1] for r in caplog.records if r.name == LOGGER]


def echo(text: str) -> str:
    """Echo."""
    return text


def bad(text: str) -> str:
    """Fail."""
    raise ValueError("password=hunter2")


async def test_every_hook_is_one_line(scripted: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, LOGGER)
    agent, _ = scripted(
        call("echo", {"text": "a\nb"}, "c1"), call("bad", {"text": "x"}, "c2"), "end", tools=[echo, bad]
    )
    async with App(agent, plugins=[LoggingPlugin()]) as app:
        got = await app.ask("hi\nthere", user="ann")
    said = lines(caplog)
    assert [line.split(" ")[0] for line in said] == [
        "on_user_message",
        "before_run",
        "before_agent",
        *["before_model", "after_model", "on_event", "before_tool", "after_tool", "on_event"],
        *["before_model", "after_model", "on_event", "before_tool", "on_tool_error", "after_tool", "on_event"],
        *["before_model", "after_model", "on_event", "after_agent", "after_run", "close"],
    ]
    assert all("\n" not in line for line in said), "a text cannot forge a line"
    assert said[0].startswith("on_user_message agent=app app=app user='ann' session=")
    assert said[0].endswith("'hi\\nthere'")
    assert 'before_tool agent=app tool=echo call=c1 args={"text":"a\\nb"}' in said
    assert 'after_tool agent=app tool=echo call=c1 result={"result":"a\\nb"}' in said
    assert "on_event" in said[-4] and "final 'end'" in said[-4]
    run = got.events[0].invocation_id
    assert all(r.getMessage().startswith(run) for r in caplog.records if r.name == LOGGER and r.getMessage() != "close")


async def test_texts_are_cut_at_200_and_arguments_at_300_characters(scripted: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, LOGGER)
    agent, _ = scripted(call("echo", {"text": "y" * 1000}), "z" * 201, tools=[echo], instruction="s" * 300)
    await App(agent, plugins=[LoggingPlugin()]).ask("x" * 200)
    said = "\n".join(lines(caplog))
    assert "'" + "x" * 200 + "'" in said, "200 characters are not cut"
    assert "'" + "z" * 200 + "'... (201 characters)" in said
    assert "z" * 201 not in said
    assert '{"text":"' + "y" * 291 + "... (1011 characters)" in said
    assert "y" * 300 not in said
    assert "system='" + "s" * 200 + "'... (" in said


async def test_no_header_no_extra_and_no_text_of_a_foreign_error(scripted: Any, caplog: pytest.LogCaptureFixture):
    def before(ctx: CallbackContext, request: ModelRequest) -> None:
        request.config = structs.replace(request.config, headers={"x-key": "secret-1"}, extra={"key": "secret-2"})

    caplog.set_level(logging.INFO, LOGGER)
    agent, _ = scripted(call("bad", {"text": "x"}), ModelError("overloaded"), tools=[bad], before_model=before)
    with pytest.raises(ModelError):
        await App(agent, plugins=[LoggingPlugin()]).ask("hi")
    said = "\n".join(line for line in lines(caplog) if not line.startswith(("after_tool", "on_event", "before_model")))
    assert "error=ValueError" in said and "hunter2" not in said
    assert "on_model_error agent=app model=scripted error=ModelError: 'overloaded'" in said
    assert "secret" not in "\n".join(lines(caplog))


async def test_bytes_are_told_by_size_only(scripted: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, LOGGER)
    agent, _ = scripted("a cat")
    picture = Content(role="user", parts=[Part(inline_data=Blob(mime_type="image/png", data=b"12345"))])
    await App(agent, plugins=[LoggingPlugin()]).ask(picture)
    assert lines(caplog)[0].endswith("5 bytes of image/png")


class Off(logging.Logger):
    """A logger whose levels are all off, and which is not to be bothered then."""

    def isEnabledFor(self, level: int) -> bool:
        return False

    def log(self, *args: Any, **more: Any) -> None:
        raise AssertionError("something was written though the level is off")


async def test_off_means_that_nothing_is_even_put_together(scripted: Any):
    agent, _ = scripted(call("bad", {"text": "x"}), ModelError("down"), tools=[bad])
    with pytest.raises(ModelError):
        await App(agent, plugins=[LoggingPlugin(logger=Off("off"))]).ask("hi")


async def test_it_changes_nothing_and_says_nothing_when_the_level_is_off(
    serve: Serve, scripted: Any, caplog: pytest.LogCaptureFixture
):
    shapes: list[Any] = []
    caplog.set_level(logging.INFO, LOGGER)
    for plugins in ([], [LoggingPlugin()], [LoggingPlugin(level=logging.DEBUG)]):
        caplog.clear()
        agent, model = scripted(call("echo", {"text": "x"}, "c1"), chunks("e", "nd"), tools=[echo])
        async with serve(agent, plugins=plugins) as talk:
            events = await talk.sse("hi", streaming=True)
        shapes.append(([(e["content"], e.get("partial")) for e in events], model.prompt()))
    assert shapes[0] == shapes[1] == shapes[2]
    assert lines(caplog) == [], "DEBUG is off"


async def test_a_logger_of_your_own(scripted: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "mine")
    agent, _ = scripted("ok")
    plugin = LoggingPlugin(level=logging.WARNING, logger=logging.getLogger("mine"))
    await App(agent, plugins=[plugin]).ask("hi")
    assert "before_model" in "".join(r.getMessage() for r in caplog.records if r.name == "mine")
    assert lines(caplog) == []
