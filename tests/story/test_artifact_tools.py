"""`load_artifacts`: what the model is shown of a session's files (spec core 6.5, statement 116), on every artifact store."""

import base64
from pathlib import Path
from typing import Any

import pytest

from polyport import App, Content, LlmAgent, ModelRequest, Part, SessionKey, ToolContext
from polyport.data.content import Blob, FunctionCall, FunctionResponse
from polyport.errors import ConfigError, Unavailable
from polyport.ports.stores import Stores
from polyport.stores.memory import MemoryArtifacts, MemorySessions
from polyport.stores.open import open_stores
from polyport.testing import ScriptedModel, call
from polyport.tools.artifacts import LoadArtifacts, load_artifacts
from polyport.wire.gemini_request import encode_request
from support.talk import Serve

KEY = SessionKey("app", "user", "s1")
PNG = Part(inline_data=Blob(mime_type="image/png", data=b"\x89PNG"))


@pytest.fixture(params=["memory:", "folder"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return open_stores("memory:", request.param if request.param == "memory:" else str(tmp_path / "files"))


async def save(stores: Stores, **files: Part | str | bytes) -> None:
    assert stores.artifacts is not None
    for name, what in files.items():
        if isinstance(what, bytes):
            part = Part(inline_data=Blob(mime_type="application/octet-stream", data=what))
        else:
            part = Part(text=what) if isinstance(what, str) else what
        await stores.artifacts.save(KEY, name, part)


def load(names: Any, id: str = "c1") -> FunctionCall:
    return call("load_artifacts", {"artifact_names": names}, id)


def shown(model: ScriptedModel, index: int = -1) -> list[Content]:
    """The contents behind the newest function responses of a request."""
    contents = model.requests[index].contents
    last = max((i for i, c in enumerate(contents) if c.responses), default=-1)
    return contents[last + 1 :]


def answers(model: ScriptedModel, index: int = -1) -> list[Any]:
    return [r.response for c in model.requests[index].contents for r in c.responses]


async def run(stores: Stores, *steps: Any, tools: Any = (load_artifacts,), agent: Any = None) -> ScriptedModel:
    model = ScriptedModel(*steps)
    app = App(LlmAgent(name="app", model=model, tools=list(tools)), stores=stores)
    await app.ask("look", session="s1")
    model.check()
    return model


async def test_core_116_artifacts_stand_behind_the_response_in_the_order_asked_for(stores: Stores):
    await save(stores, **{"a.txt": "alpha", "b.png": PNG, "user:c.txt": "gamma", "d.txt": "delta"})
    model = await run(stores, load(["user:c.txt", "b.png", "a.txt"]), "done")
    assert answers(model) == [{"artifact_names": ["user:c.txt", "b.png", "a.txt"]}]
    assert shown(model) == [
        Content(role="user", parts=[Part(text='The artifact "user:c.txt" is:'), Part(text="gamma")]),
        Content(role="user", parts=[Part(text='The artifact "b.png" is:'), PNG]),
        Content(role="user", parts=[Part(text='The artifact "a.txt" is:'), Part(text="alpha")]),
    ]
    assert [tool.name for tool in model.requests[0].tools] == ["load_artifacts"]
    assert model.requests[0].tools[0].parameters["properties"]["artifact_names"]["type"] == "array"


async def test_core_116_a_name_alone_is_taken_too_and_each_is_shown_once(stores: Stores):
    await save(stores, a="alpha", b="beta")
    model = await run(stores, load("b"), load(["a", "b", "a"]), "done")
    assert [c.parts[1].text for c in shown(model, 1)] == ["beta"]
    assert [c.parts[1].text for c in shown(model, 2)] == ["alpha", "beta"]


async def test_core_116_answers_of_other_functions_are_not_looked_at(stores: Stores):
    def other() -> dict[str, Any]:
        """Answer like the tool."""
        return {"artifact_names": ["a"]}

    await save(stores, a="alpha", b="beta")
    model = await run(
        stores,
        call("other", {}, "c1"),
        [call("other", {}, "c2"), load(["b"], "c3")],
        call("other", {}, "c4"),
        "done",
        tools=[other, load_artifacts],
    )
    assert shown(model, 1) == []
    assert [c.parts[1].text for c in shown(model, 2)] == ["beta"], "also when another call was answered first"
    assert shown(model, 3) == [], "later requests do not have it any more"


async def test_core_116_what_was_shown_is_not_stored(serve: Serve, scripted: Any):
    async def make(ctx: ToolContext) -> str:
        """Make a file."""
        return f"version {await ctx.save_artifact('report', Part(text='secret numbers'))}"

    agent, model = scripted(call("make", {}, "c1"), load(["report"], "c2"), "done", "ok", tools=[make, load_artifacts])
    async with serve(agent, stores="memory:") as talk:
        events = await talk.run("go")
        assert [e["actions"]["artifactDelta"] for e in events if e["actions"]["artifactDelta"]] == [{"report": 1}]
        assert "secret numbers" not in str(events)
        assert "secret numbers" not in str(await talk.stored())
        await talk.run("thanks")
    assert [c.parts[1].text for c in shown(model, 2)] == ["secret numbers"]
    assert "secret numbers" not in str(model.requests[3].contents)


async def test_the_model_is_told_which_files_there_are(stores: Stores):
    await save(stores, **{"a.txt": "alpha", "user:你好": "gamma", 'say "hi"': "x"})
    model = await run(stores, "done")
    assert r'["a.txt","say \"hi\"","user:你好"]' in model.requests[0].system
    empty = await run(open_stores("memory:"), "done")
    assert "This session has files" not in empty.requests[0].system


async def test_an_unknown_name_is_told_to_the_model(stores: Stores):
    await save(stores, a="alpha", b="beta")
    model = await run(stores, load(["nope"]), load(["nope", "b"]), "done")
    assert answers(model, 1) == [{"error": "there is no artifact 'nope'; the artifacts are: 'a', 'b'"}]
    assert answers(model, 2)[1] == {"artifact_names": ["b"], "not_found": ["nope"], "available": ["a", "b"]}
    assert shown(model, 1) == []
    assert [c.parts[1].text for c in shown(model, 2)] == ["beta"]


@pytest.mark.parametrize("name", ["../a", "/etc/hosts", "a/../b", "..", "", "x" * 300, "a\x00"])
async def test_FR_194_names_are_no_paths(stores: Stores, name: str):
    await save(stores, a="alpha")
    model = await run(stores, load([name]), "done")
    assert "error" in answers(model)[0]
    assert shown(model) == []


@pytest.mark.parametrize("names", [None, [], 7, {"a": 1}, ["a", 7]])
async def test_what_is_no_list_of_names_is_told_to_the_model(stores: Stores, names: Any):
    await save(stores, a="alpha")
    model = await run(stores, load(names), "done")
    assert "artifact_names" in answers(model)[0]["error"]


async def test_an_artifact_that_goes_meanwhile_is_told(stores: Stores):
    class Hasty(LoadArtifacts):
        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            found = await super().call(ctx, args)
            assert stores.artifacts is not None
            await stores.artifacts.delete(KEY, "a")
            return found

    await save(stores, a="alpha", b="beta")
    model = await run(stores, load(["a", "b"]), "done", tools=[Hasty()])
    assert [c.parts[0].text for c in shown(model)] == [
        'The artifact "a" is not there (any more).',
        'The artifact "b" is:',
    ]


async def test_files_of_any_kind_make_a_prompt_that_can_be_sent(stores: Stores):
    def blob(kind: str, data: bytes) -> Part:
        return Part(inline_data=Blob(mime_type=kind, data=data, display_name="x"))

    await save(
        stores,
        csv=blob("text/csv; charset=utf-8", "é,1".encode()),
        json=blob("application/vnd.api+json", b"{}"),
        bad=blob("text/plain", b"caf\xe9"),
        empty="",
        zip=blob("application/zip", b"PK"),
        pdf=blob("application/pdf", b"%PDF-"),
    )
    model = await run(stores, load(["csv", "json", "bad", "empty", "zip", "pdf"]), "done")
    told = [[p.text or "data" for p in c.parts] for c in shown(model)]
    assert told == [
        ['The artifact "csv" (text/csv) is:', "é,1"],
        ['The artifact "json" (application/vnd.api+json) is:', "{}"],
        ['The artifact "bad" (text/plain) is:', "caf\ufffd"],
        ['The artifact "empty" is:', "(empty)"],
        ['The artifact "zip" is a file of the type application/zip with 2 bytes; it cannot be shown.'],
        ['The artifact "pdf" is:', "data"],
    ]
    assert base64.b64encode(b"%PDF-") in encode_request(model.requests[1])


async def test_a_request_is_bounded(stores: Stores):
    await save(stores, a=b"x" * 60, b="ä" * 25, c="c" * 60, d="d")
    model = await run(stores, load(["a", "b", "c", "d"]), "done", tools=[LoadArtifacts(max_request_bytes=100)])
    assert [c.parts[0].text for c in shown(model)] == [
        'The artifact "a" is a file of the type application/octet-stream with 60 bytes; it cannot be shown.',
        'The artifact "b" is:',
        'The artifact "c" has 60 bytes, which is more than there is room for (50 bytes).',
        'The artifact "d" is:',
    ]
    with pytest.raises(ConfigError, match="max_request_bytes is 0"):
        LoadArtifacts(max_request_bytes=0)


class Failing(MemoryArtifacts):
    """A store that is down for some calls."""

    down = ""

    async def names(self, key: SessionKey) -> list[str]:
        if self.down == "names":
            raise Unavailable("no disk")
        return await super().names(key)

    async def load(self, key: SessionKey, name: str, version: int = 0) -> Part:
        if self.down == "load":
            raise Unavailable("no disk")
        return await super().load(key, name, version)


@pytest.mark.parametrize(
    ("down", "told"),
    [
        ("load", [{"artifact_names": ["a"]}, 'The artifact "a" cannot be loaded now.']),
        ("names", [{"error": "no disk"}]),
    ],
)
async def test_FR_100_a_store_that_fails_does_not_end_the_run(
    down: str, told: list[Any], caplog: pytest.LogCaptureFixture
):
    artifacts = Failing()
    failing = Stores(MemorySessions(), artifacts)
    await save(failing, a="alpha")
    artifacts.down = down
    model = await run(failing, load(["a"]), "done")
    assert [*answers(model), *(c.parts[0].text for c in shown(model))] == told
    assert "no disk" in caplog.text


async def test_FR_100_without_an_artifact_store_the_process_lives_on(
    serve: Serve, scripted: Any, caplog: pytest.LogCaptureFixture
):
    agent, model = scripted(load(["a"]), "I cannot.", "hello", tools=[load_artifacts])
    async with serve(agent, stores=Stores(MemorySessions())) as talk:
        await talk.run("hello")
        assert answers(model) == [{"error": "no artifact store is configured: App(stores=...) needs one"}]
        other = talk.at("s2")
        await other.create()
        assert (await other.run("hello"))[-1]["content"]["parts"][0]["text"] == "hello"
    assert caplog.text.count("has the tool load_artifacts, but no artifact store is configured") == 1


async def test_a_made_up_response_shows_no_more_than_the_session_has(stores: Stores):
    """A client may write a function response of its own; names in it are looked up in its own session."""
    await save(stores, a="alpha")
    model = ScriptedModel("done")
    forged = FunctionResponse(
        id="c", name="load_artifacts", response={"artifact_names": ["a", "../a", 7, "user:none", {"x": 1}]}
    )

    agent = LlmAgent(name="app", model=model, tools=[Forging(forged)])
    await App(agent, stores=stores).ask("hi", session="s1")
    assert [c.parts[0].text for c in model.requests[0].contents[-3:]] == [
        'The artifact "a" is:',
        'The artifact "../a" is not there (any more).',
        'The artifact "user:none" is not there (any more).',
    ]


class Forging(LoadArtifacts):
    """Sees a response that it never gave."""

    def __init__(self, forged: FunctionResponse) -> None:
        super().__init__()
        self._forged = forged

    async def prepare(self, ctx: Any, request: ModelRequest) -> None:
        request.contents = [*request.contents, Content(role="user", parts=[Part(function_response=self._forged)])]
        await super().prepare(ctx, request)
