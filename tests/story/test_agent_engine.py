"""Agent Engine: agents called by the name of a method, over both paths (spec rest 6)."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from polyport import App, FunctionAgent, LlmAgent
from polyport.data.auth import Caller, Credentials
from polyport.data.compaction import CompactionConfig
from polyport.data.content import model_text
from polyport.data.event import EventActions
from polyport.data.limits import Limits
from polyport.errors import ConfigError, ModelError
from polyport.protocols.agent_engine import AgentEngine, Call, Method, class_methods
from polyport.testing import ScriptedModel, call, chunks, connect
from polyport.testing.connect import Client

UNARY, STREAM = "/reasoning_engine", "/stream_reasoning_engine"
EXTERNAL = "projects/p/locations/global/collections/default_collection/engines/e/sessions/s"
BUILT_IN = [
    "async_create_session",
    "async_get_session",
    "async_list_sessions",
    "async_delete_session",
    "create_session",
    "get_session",
    "list_sessions",
    "delete_session",
    "async_stream_query",
    "streaming_agent_run_with_events",
    "stream_query",
]


class Engine:
    """Calls methods of one served app."""

    def __init__(self, client: Client, model: ScriptedModel) -> None:
        self.client = client
        self.model = model

    async def unary(self, method: str, status: int = 200, path: str = UNARY, **input: Any) -> Any:
        response = await self.client.post(path, json={"class_method": method, "input": input})
        assert response.status == status, response.text
        assert response.headers["content-type"].startswith("application/json")
        return response.json()["output"] if status == 200 else response.json()

    async def stream(self, method: str = "async_stream_query", path: str = STREAM, **input: Any) -> list[Any]:
        """The lines of a stream, decoded."""
        lines, _ = await self.stream_and_headers(method, path, **input)
        return lines

    async def stream_and_headers(
        self, method: str, path: str = STREAM, **input: Any
    ) -> tuple[list[Any], dict[str, str]]:
        response = await self.client.post(path, json={"class_method": method, "input": input})
        assert response.status == 200, response.text
        assert response.text.endswith("\n")
        return [json.loads(text) for text in response.text.splitlines()], dict(response.headers)

    async def refused(self, method: str, path: str = STREAM, **input: Any) -> tuple[int, str]:
        response = await self.client.post(path, json={"class_method": method, "input": input})
        body = response.json()
        assert body["error"] == body["detail"]
        return response.status, body["detail"]

    async def run_with_events(self, **request: Any) -> list[Any]:
        return await self.stream("streaming_agent_run_with_events", request_json=json.dumps(request))


@asynccontextmanager
async def engine(*steps: Any, settings: AgentEngine | None = None, **options: Any) -> AsyncGenerator[Engine]:
    model = ScriptedModel(*steps)
    agent = LlmAgent(name="weather", model=model)
    protocols = ["rest", settings or AgentEngine(engine_id="e1")]
    async with connect(App(agent, protocols=protocols, **options)) as client:
        yield Engine(client, model)
    model.check()


def texts(lines: list[Any]) -> list[str]:
    return ["".join(p.get("text", "") for p in line["content"]["parts"]) for line in lines]


class TestSessions:
    async def test_rest_107_FR_230_create_with_state_and_get(self) -> None:
        async with engine() as at:
            made = await at.unary("async_create_session", user_id="u", state={"city": "Rome"})
            assert made["app_name"] == "e1" and made["user_id"] == "u"
            assert isinstance(made["last_update_time"], float)
            assert made["state"] == {"city": "Rome"} and made["events"] == []
            assert await at.unary("async_get_session", user_id="u", session_id=made["id"]) == made
            rest = await at.client.get(f"/apps/weather/users/u/sessions/{made['id']}")
            assert rest.json()["state"] == {"city": "Rome"}  # one session, two protocols

    async def test_rest_108_FR_230_list_delete_and_get_of_a_missing_one(self) -> None:
        async with engine("hi") as at:
            made = await at.unary("async_create_session", user_id="u", session_id="mine")
            assert made["id"] == "mine"
            await at.stream(user_id="u", session_id="mine", message="hello")
            listed = await at.unary("async_list_sessions", user_id="u")
            assert [(s["id"], s["events"]) for s in listed["sessions"]] == [("mine", [])]
            found = await at.unary("async_get_session", user_id="u", session_id="mine")
            assert [e["author"] for e in found["events"]] == ["user", "weather"]
            assert "invocationId" in found["events"][0] and found["events"][0]["timestamp"].endswith("Z")
            assert await at.unary("async_delete_session", user_id="u", session_id="mine") == ""
            missing = await at.unary("async_get_session", 404, user_id="u", session_id="mine")
            assert "mine" in missing["detail"]
            assert await at.unary("async_list_sessions", user_id="u") == {"sessions": []}

    async def test_a_session_of_another_user_is_not_found(self) -> None:
        async with engine() as at:
            await at.unary("async_create_session", user_id="ann", session_id="s")
            await at.unary("async_get_session", 404, user_id="bob", session_id="s")
            assert await at.unary("async_list_sessions", user_id="bob") == {"sessions": []}

    async def test_an_id_that_is_in_use_is_a_conflict(self) -> None:
        async with engine() as at:
            await at.unary("async_create_session", user_id="u", session_id="s")
            await at.unary("async_create_session", 409, user_id="u", session_id="s")

    @pytest.mark.parametrize("method", ["async_create_session", "async_get_session", "async_list_sessions"])
    async def test_a_call_without_a_user_says_so(self, method: str) -> None:
        async with engine() as at:
            body = await at.unary(method, 400, session_id="s")
            assert body["detail"] == "user_id is required"

    async def test_the_names_of_google_adk_do_the_same(self) -> None:
        async with engine("hi") as at:
            made = await at.unary("create_session", user_id="u", state={"a": 1})
            assert await at.unary("get_session", user_id="u", session_id=made["id"]) == made
            assert [s["id"] for s in (await at.unary("list_sessions", user_id="u"))["sessions"]] == [made["id"]]
            assert texts(await at.stream("stream_query", user_id="u", session_id=made["id"], message="x")) == ["hi"]
            assert await at.unary("delete_session", user_id="u", session_id=made["id"]) == ""


class TestDispatch:
    async def test_rest_109_a_method_on_the_other_path(self) -> None:
        async with engine() as at:
            status, text = await at.refused("async_stream_query", UNARY, user_id="u", message="x")
            assert status == 400 and text.startswith("unrecognized class method: async_stream_query")
            status, text = await at.refused("async_list_sessions", STREAM, user_id="u")
            assert status == 400 and text.startswith("unrecognized class method: async_list_sessions")

    @pytest.mark.parametrize("path", [UNARY, STREAM])
    async def test_FR_227_an_unknown_method_names_the_known_ones(self, path: str) -> None:
        async with engine() as at:
            status, text = await at.refused("no_such", path)
            assert status == 400 and text.startswith("unrecognized class method: no_such")
            assert "async_stream_query" in text

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"class_method": 1}', b'{"input": {}}', b"\xff"])
    async def test_a_body_that_is_no_call(self, body: bytes) -> None:
        async with engine() as at:
            response = await at.client.post(UNARY, body=body, headers={"content-type": "application/json"})
            assert response.status == 400 and response.json()["error"]

    async def test_rest_116_a_body_that_is_too_large_is_never_carried_out(self) -> None:
        async with engine(settings=AgentEngine(max_payload_bytes=200)) as at:
            input = {"user_id": "u", "session_id": "s", "state": {"x": "y" * 200}}
            response = await at.client.post(UNARY, json={"class_method": "async_create_session", "input": input})
            assert response.status == 413
            await at.unary("async_get_session", 404, user_id="u", session_id="s")

    async def test_rest_116_eleven_mebibytes(self) -> None:
        async with engine() as at:
            body = b'{"class_method":"async_list_sessions","input":{"user_id":"' + b"u" * (11 << 20) + b'"}}'
            response = await at.client.post(UNARY, body=body, headers={"content-type": "application/json"})
            assert response.status == 413

    async def test_both_paths_are_served_under_api_too(self) -> None:
        async with engine("hi") as at:
            assert (await at.unary("async_list_sessions", path="/api" + UNARY, user_id="u")) == {"sessions": []}
            assert texts(await at.stream(path="/api" + STREAM, user_id="u", message="x")) == ["hi"]
            assert (await at.client.get("/api" + UNARY)).status == 405

    async def test_a_page_of_another_site_cannot_post_a_form(self) -> None:
        async with engine() as at:
            body = b'{"class_method":"async_create_session","input":{"user_id":"u"}}'
            response = await at.client.post(UNARY, body=body, headers={"content-type": "text/plain"})
            assert response.status == 400

    async def test_deep_json_is_refused(self) -> None:
        async with engine() as at:
            deep = b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"
            body = b'{"class_method":"async_create_session","input":{"user_id":"u","state":' + deep + b"}}"
            response = await at.client.post(UNARY, body=body, headers={"content-type": "application/json"})
            assert response.status == 400 and "nests deeper" in response.json()["detail"]
            deep = '{"message":' + "[" * 100 + "]" * 100 + "}"
            status, text = await at.refused("streaming_agent_run_with_events", request_json=deep)
            assert status == 400 and "nests deeper" in text


class TestQuery:
    async def test_rest_110_text_and_content_and_lines_in_snake_case(self) -> None:
        async with engine("one", "two") as at:
            first = await at.stream(user_id="u", session_id="s", message="hi")
            second = await at.stream(user_id="u", session_id="s", message={"role": "user", "parts": [{"text": "more"}]})
            assert (texts(first), texts(second)) == (["one"], ["two"])
            assert at.model.prompt() == ["user: hi", "model: one", "user: more"]
            (line,) = first
            assert {"id", "timestamp", "invocation_id", "author", "actions", "finish_reason"} <= line.keys()
            assert isinstance(line["timestamp"], int) and line["actions"]["state_delta"] == {}

    async def test_rest_111_partial_lines_in_one_method_only(self) -> None:
        async with engine(chunks("a", "b"), chunks("a", "b")) as at:
            lines = await at.stream(user_id="u", session_id="s", message="x")
            assert [(line.get("partial", False), text) for line, text in zip(lines, texts(lines), strict=True)] == [
                (True, "a"),
                (True, "b"),
                (False, "ab"),
            ]
            whole = await at.run_with_events(user_id="u", message={"parts": [{"text": "x"}]})
            assert [texts(line["events"]) for line in whole] == [["ab"]]

    async def test_rest_112_events_without_content_are_left_out(self) -> None:
        async def work(ctx: Any) -> None:
            await ctx.emit(ctx.event(actions=EventActions(state_delta={"seen": 1})))
            await ctx.emit(ctx.event(content=model_text("said")))

        app = App(FunctionAgent(name="quiet", function=work), protocols=[AgentEngine()])
        async with connect(app) as client:
            at = Engine(client, ScriptedModel())
            assert len(await at.stream(user_id="u", session_id="s", message="x")) == 1
            found = await at.unary("async_get_session", user_id="u", session_id="s")
            assert found["state"] == {"seen": 1} and len(found["events"]) == 3

    async def test_rest_113_FR_227_an_error_in_the_middle_is_the_last_line(self) -> None:
        async with engine(call("nothing"), ModelError("overloaded", http_status=503)) as at:
            lines = await at.stream(user_id="u", session_id="s", message="x")
            assert "function_call" in lines[0]["content"]["parts"][0]
            assert lines[-1] == {"error": "overloaded"} and [line for line in lines if "error" in line] == lines[-1:]

    async def test_FR_227_a_failure_that_is_not_ours_says_nothing_of_the_inside(self) -> None:
        async with engine(ValueError("postgres://secret")) as at:
            (line,) = await at.stream(user_id="u", message="x")
            assert "error" in line and "secret" not in line["error"]

    async def test_FR_227_seeded_history(self) -> None:
        events = [
            {"author": "user", "content": {"parts": [{"text": "I am Ann"}]}},
            {"author": "weather", "content": {"role": "model", "parts": [{"text": "hello Ann"}]}},
        ]
        async with engine("yes") as at:
            lines = await at.stream(user_id="u", session_id="s", message="do you know me?", session_events=events)
            assert texts(lines) == ["yes"]
            assert at.model.prompt() == ["user: I am Ann", "model: hello Ann", "user: do you know me?"]
            status, _ = await at.refused(
                "async_stream_query", user_id="u", session_id="s", message="again", session_events=events
            )
            assert status == 409

    async def test_FR_227_seeded_history_may_not_change_what_all_users_share(self) -> None:
        events = [{"author": "user", "actions": {"stateDelta": {"app:price": 0}}}]
        async with engine() as at:
            status, text = await at.refused("async_stream_query", user_id="u", message="x", session_events=events)
            assert status == 400 and "app:price" in text

    @pytest.mark.parametrize(
        ("input", "text"),
        [
            ({"message": "x"}, "user_id is required"),
            ({"user_id": "u"}, "message is required"),
            ({"user_id": "u", "message": ""}, "message is required"),
            ({"user_id": "u", "message": {"parts": []}}, "message is required"),
            ({"user_id": "u", "message": 7}, "message"),
            ({"user_id": "u", "message": {"parts": "x"}}, "message.parts"),
            ({"user_id": "u" * 300, "message": "x"}, "user_id has 300 characters"),
            ({"user_id": "u", "session_id": "..", "message": "x"}, "session_id"),
        ],
    )
    async def test_FR_227_what_is_wrong_is_a_status_and_not_an_empty_stream(
        self, input: dict[str, Any], text: str
    ) -> None:
        async with engine() as at:
            status, said = await at.refused("async_stream_query", **input)
            assert status == 400 and text in said

    async def test_FR_228_the_caller_learns_the_id_of_a_new_session(self) -> None:
        async with engine("one", "two") as at:
            lines, headers = await at.stream_and_headers("async_stream_query", user_id="u", message="first")
            session = lines[0]["custom_metadata"]["session_id"]
            assert headers["x-session-id"] == session
            again, headers = await at.stream_and_headers(
                "async_stream_query", user_id="u", session_id=session, message="second"
            )
            assert headers["x-session-id"] == session and "custom_metadata" not in again[0]
            assert at.model.prompt() == ["user: first", "model: one", "user: second"]

    async def test_FR_228_an_id_of_the_callers_own_is_taken(self) -> None:
        async with engine("one") as at:
            lines, headers = await at.stream_and_headers(
                "async_stream_query", user_id="u", session_id="mein/ü: y", message="x"
            )
            assert texts(lines) == ["one"] and headers["x-session-id"] == "mein%2F%C3%BC%3A%20y"
            await at.unary("async_get_session", user_id="u", session_id="mein/ü: y")

    async def test_FR_228_an_id_that_cannot_be_is_refused_with_a_reason(self) -> None:
        async with engine() as at:
            status, text = await at.refused("async_stream_query", user_id="u", session_id="a\r\nb: c", message="x")
            assert status == 400 and "control character" in text

    async def test_a_caller_that_hangs_up_cancels_the_run(self) -> None:
        stopped = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()
            return ""

        body = {"class_method": "async_stream_query", "input": {"user_id": "u", "session_id": "s", "message": "x"}}
        async with engine(slow) as at:
            async with at.client.stream("POST", STREAM, json=body) as response:
                assert response.status == 200
            with anyio.fail_after(20):
                await stopped.wait()

    async def test_a_caller_that_leaves_the_line_is_not_served(self) -> None:
        asked: list[str] = []
        begun, go = anyio.Event(), anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            asked.append(request.contents[-1].text)
            begun.set()
            await go.wait()
            return "ok"

        async with engine(slow, slow) as at, anyio.create_task_group() as group:
            group.start_soon(partial(at.stream, user_id="u", session_id="s", message="one"))
            await begun.wait()
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(partial(at.stream, user_id="u", session_id="s", message="two"))
                await anyio.wait_all_tasks_blocked()
                impatient.cancel_scope.cancel()
            go.set()
            await at.stream(user_id="u", session_id="s", message="three")
        assert asked == ["one", "three"]

    async def test_a_stream_that_takes_too_long_says_so(self) -> None:
        async def slow(request: Any, on_partial: Any) -> str:
            await anyio.sleep_forever()
            return ""

        async with engine(slow, limits=Limits(sse_timeout_s=0.05)) as at:
            (line,) = await at.stream(user_id="u", message="x")
            assert "timeout" in line["error"]


class TestAgentRun:
    async def test_rest_114_a_name_from_outside_gets_a_session_once(self) -> None:
        async with engine("one", "two", "three") as at:
            message = {"role": "user", "parts": [{"text": "a"}]}
            (first,) = await at.run_with_events(user_id="u", session_id=EXTERNAL, message=message)
            backend = first["session_id"]
            assert backend != EXTERNAL
            (second,) = await at.run_with_events(user_id="u", session_id=backend, message=message)
            (third,) = await at.run_with_events(user_id="u", session_id=EXTERNAL, message=message)
            assert second["session_id"] == third["session_id"] == backend
            assert at.model.prompt() == ["user: a", "model: one", "user: a", "model: two", "user: a"]
            found = await at.unary("async_get_session", user_id="u", session_id=backend)
            assert found["state"] == {"__external_session_id": EXTERNAL}
            assert len((await at.unary("async_list_sessions", user_id="u"))["sessions"]) == 1

    async def test_one_name_of_two_users_is_two_sessions(self) -> None:
        async with engine("one", "two") as at:
            found = [
                (await at.run_with_events(user_id=user, session_id=EXTERNAL, message="x"))[0]["session_id"]
                for user in ("ann", "bob")
            ]
            assert found[0] != found[1]

    async def test_without_a_session_the_new_id_is_on_every_line(self) -> None:
        async with engine(call("nothing"), "done") as at:
            lines = await at.run_with_events(user_id="u", message="x")
            assert len(lines) == 3 and len({line["session_id"] for line in lines}) == 1
            await at.unary("async_get_session", user_id="u", session_id=lines[0]["session_id"])

    async def test_rest_115_a_session_without_a_user(self) -> None:
        async with engine() as at:
            inner = json.dumps({"session_id": EXTERNAL, "message": "x"})
            status, text = await at.refused("streaming_agent_run_with_events", request_json=inner)
            assert (status, text) == (400, "user_id is required for backend session handling")

    @pytest.mark.parametrize("inner", ["", "{", "[]", "null", '{"user_id": "u"}', '{"user_id": 1, "message": "x"}'])
    async def test_request_json_that_is_wrong(self, inner: str) -> None:
        async with engine() as at:
            status, text = await at.refused("streaming_agent_run_with_events", request_json=inner)
            assert status == 400 and text


class _Names:
    """Callers say who they are."""

    challenge = ""

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        names = credentials.values("x-user")
        return Caller(user=names[0]) if names else None


class TestIdentity:
    async def test_a_caller_acts_as_itself_only(self) -> None:
        async with engine("hi", auth=_Names()) as at:
            for method, path in (("async_list_sessions", UNARY), ("async_stream_query", STREAM)):
                body = {"class_method": method, "input": {"user_id": "ann", "message": "x"}}
                assert (await at.client.post(path, json=body)).status == 401
                assert (await at.client.post(path, json=body, headers={"x-user": "bob"})).status == 403
                assert (await at.client.post(path, json=body, headers={"x-user": "ann"})).status == 200
            inner = json.dumps({"user_id": "ann", "session_id": EXTERNAL, "message": "x"})
            body = {"class_method": "streaming_agent_run_with_events", "input": {"request_json": inner}}
            assert (await at.client.post(STREAM, json=body, headers={"x-user": "bob"})).status == 403
            body = {"class_method": "async_list_sessions", "input": {"user_id": "ann"}}
            listed = (await at.client.post(UNARY, json=body, headers={"x-user": "ann"})).json()
            assert len(listed["output"]["sessions"]) == 1  # nothing was made for bob


class TestSetUp:
    def test_rest_117_a_method_that_comes_twice(self) -> None:
        async def handle(call: Call) -> str:
            return ""

        twice = Method(
            name="async_get_session", api_mode="async", description="", parameters={"type": "object"}, unary=handle
        )
        with pytest.raises(ConfigError, match="duplicate method name: async_get_session"):
            App(LlmAgent(name="a", model="demo"), protocols=[AgentEngine(methods=[twice])])
        with pytest.raises(ConfigError, match="duplicate method name"):
            class_methods([twice])

    def test_rest_117_compaction_that_does_not_fit_the_root_agent(self) -> None:
        async def work(ctx: Any) -> None:
            pass

        with pytest.raises(ConfigError, match="compaction"):
            App(FunctionAgent(name="f", function=work), compaction=CompactionConfig(), protocols=[AgentEngine()])

    def test_an_app_that_there_is_not(self) -> None:
        with pytest.raises(ConfigError, match="no app 'b'; the apps are: a"):
            App(LlmAgent(name="a", model="demo"), protocols=[AgentEngine(app="b")])

    async def test_a_method_of_ones_own(self) -> None:
        async def count(call: Call) -> dict[str, int]:
            user = await call.act_as(call.input.get("user_id", ""))
            page = await call.engine.runs.stores.sessions.list(call.engine.app, user)
            return {"count": len(page.sessions)}

        own = Method(name="count", api_mode="async", description="Counts.", parameters={"type": "object"}, unary=count)
        async with engine(settings=AgentEngine(methods=[own])) as at:
            await at.unary("async_create_session", user_id="u")
            assert await at.unary("count", user_id="u") == {"count": 1}
        assert class_methods([own])[-1]["name"] == "count"

    def test_class_methods_of_a_deployment(self) -> None:
        found = class_methods()
        assert [method["name"] for method in found] == BUILT_IN
        modes = {method["name"]: method["api_mode"] for method in found}
        assert modes["async_create_session"] == "async" and modes["create_session"] == ""
        assert modes["async_stream_query"] == "async_stream" and modes["stream_query"] == "stream"
        for method in found:
            assert set(method) == {"name", "api_mode", "description", "parameters"}
            parameters = method["parameters"]
            assert parameters["type"] == "object"
            assert set(parameters["required"]) <= set(parameters["properties"])
        json.dumps(found)
