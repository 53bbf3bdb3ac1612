"""The eval and tests routes, in the shapes in which google-adk 2.13 was seen to answer."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import App, FunctionAgent, LlmAgent
from polyport.errors import ConfigError
from polyport.evals.words import stemmer
from polyport.protocols.evals.mount import Evals
from polyport.testing import ScriptedModel, call, connect
from polyport.testing.connect import Client
from support.evals import DEV, PARIS, case, eval_set, evals_served, turn, weather, written

TRAJECTORY = {"metric_name": "tool_trajectory_avg_score", "threshold": 1}
MODES = {"model_execution_mode": "live", "tool_execution_mode": "live"}
"""What the page sends beside a set."""
NEW, OLD = f"{DEV}/eval-sets", f"{DEV}/eval_sets"


async def ok(client: Client, method: str, path: str, **options: Any) -> Any:
    response = await client.request(method, path, **options)
    assert response.status == 200, response.text
    return response.json()


async def refused(client: Client, method: str, path: str, status: int, **options: Any) -> str:
    response = await client.request(method, path, **options)
    assert response.status == status, response.text
    assert set(response.json()) == {"error", "detail"}
    return response.json()["detail"]


async def test_eval_sets_are_made_listed_read_and_deleted(tmp_path: Path):
    async with evals_served(tmp_path) as client:
        assert await ok(client, "GET", NEW) == {"evalSetIds": []}
        assert await ok(client, "GET", OLD) == []
        made = await ok(client, "POST", NEW, json={"eval_set": {**MODES, "eval_set_id": "s1", "eval_cases": []}})
        assert made == {
            "eval_set_id": "s1",
            "name": "s1",
            "eval_cases": [],
            "creation_timestamp": made["creation_timestamp"],
        }
        assert made["creation_timestamp"] > 0
        assert await ok(client, "POST", f"{OLD}/old") is None
        assert await ok(client, "POST", OLD, json={"evalSet": {"evalSetId": "camel", "evalCases": [PARIS]}})
        assert await ok(client, "GET", NEW) == {"evalSetIds": ["camel", "old", "s1"]}
        assert await ok(client, "GET", f"{OLD}/s1") == made
        assert await ok(client, "GET", f"{NEW}/s1") == made
        assert await ok(client, "DELETE", f"{NEW}/old") is None
        assert await ok(client, "DELETE", f"{OLD}/camel") is None
        assert await ok(client, "GET", OLD) == ["s1"]
        assert "Eval set `old` not found." in await refused(client, "GET", f"{NEW}/old", 404)
        assert "Eval set `old` not found." in await refused(client, "DELETE", f"{NEW}/old", 404)
    stored = json.loads((tmp_path / "weather" / "s1.evalset.json").read_text())
    assert stored == made
    assert [p.name for p in (tmp_path / "weather").iterdir()] == ["s1.evalset.json"]


async def test_bad_eval_sets_are_refused(tmp_path: Path):
    async with evals_served(tmp_path) as client:
        for body in (
            {"eval_set": {"eval_set_id": "../s1", "eval_cases": []}},
            {"eval_set": {"eval_set_id": "", "eval_cases": []}},
            {"eval_set": {"eval_set_id": "s1", "eval_cases": [{"eval_id": "x"}]}},
            {"eval_set": {"eval_cases": []}},
            {},
        ):
            await refused(client, "POST", NEW, 400, json=body)
        await ok(client, "POST", f"{OLD}/s1")
        assert "exists already" in await refused(client, "POST", f"{OLD}/s1", 400)
        assert "exists already" in await refused(client, "POST", NEW, 400, json={"eval_set": {"eval_set_id": "s1"}})
        for app in ("..", "a%2Fb", "%2e%2e%2f", ".hidden"):
            response = await client.get(f"/dev/apps/{app}/eval_sets")
            assert response.status in (400, 404), response.text
        assert await ok(client, "GET", "/dev/apps/nobody/eval-sets") == {"evalSetIds": []}
        assert "there is no app 'nobody'" in await refused(client, "POST", "/dev/apps/nobody/eval_sets/s", 404)
        await refused(client, "GET", f"{OLD}/..%2F..%2Fetc", 400)
    assert not (tmp_path / "nobody").exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", OLD + "/{}"),
        ("GET", f"{DEV}/eval_results/{{}}"),
        ("GET", f"{DEV}/tests/{{}}"),
        ("PUT", f"{DEV}/tests/{{}}"),
    ],
)
async def test_a_name_too_long_for_a_file_is_400(tmp_path: Path, method: str, path: str):
    body = {"json": {"session_data": {}}} if method == "PUT" else {}
    async with evals_served(tmp_path) as client:
        assert "too long" in await refused(client, method, path.format("%C3%A9" * 150), 400, **body)


async def test_a_set_of_very_many_cases_is_checked_at_once(tmp_path: Path):
    cases = [{"eval_id": f"c{n}", "conversation": []} for n in range(60_000)]
    async with evals_served(tmp_path) as client:
        twice = [*cases, cases[7]]
        said = await refused(client, "POST", NEW, 400, json={"eval_set": {"eval_set_id": "s1", "eval_cases": twice}})
        assert "two cases have the evalId 'c7'" in said


async def test_the_result_of_a_set_with_the_longest_id_is_kept(tmp_path: Path):
    set_id = "s" * 200
    written(tmp_path / "weather", eval_set(PARIS, id=set_id))
    async with evals_served(tmp_path) as client:
        ran = await ok(client, "POST", f"{NEW}/{set_id}/run", json={"eval_metrics": [TRAJECTORY]})
        assert [r["finalEvalStatus"] for r in ran["runEvalResults"]] == [1]
        (kept,) = await ok(client, "GET", f"{DEV}/eval_results")
        assert (await ok(client, "GET", f"{DEV}/eval_results/{kept}"))["evalSetId"] == set_id


@pytest.mark.parametrize("base", [f"{OLD}/s1/evals", f"{NEW}/s1/eval-cases", "/apps/weather/eval_sets/s1/evals"])
async def test_cases_are_listed_read_replaced_and_deleted(tmp_path: Path, base: str):
    file = written(tmp_path / "weather", {**eval_set(PARIS, case("b"), {**case("a"), "future": 1}), "other": [1]})
    async with evals_served(tmp_path) as client:
        assert await ok(client, "GET", base) == ["a", "b", "paris"]
        found = await ok(client, "GET", f"{base}/paris")
        assert list(found) == ["evalId", "conversation", "creationTimestamp", "finalSessionState"]
        assert found["conversation"][0]["intermediateData"]["toolUses"] == [
            {"name": "get_weather", "args": {"city": "Paris"}}
        ]
        found["sessionInput"] = {"appName": "weather", "userId": "u", "state": {"k": 1}}
        assert await ok(client, "PUT", f"{base}/paris", json=found) is None
        assert await ok(client, "GET", f"{base}/paris") == found
        assert await ok(client, "DELETE", f"{base}/b") is None
        assert await ok(client, "GET", base) == ["a", "paris"]
        assert "should match the eval id" in await refused(client, "PUT", f"{base}/a", 400, json=found)
        assert "Eval case `c7` not found in eval set `s1`." in await refused(
            client, "PUT", f"{base}/c7", 404, json=case("c7")
        )
        assert "Eval case `c7` not found" in await refused(client, "DELETE", f"{base}/c7", 404)
        assert "Eval set `s1` or Eval `c7` not found." in await refused(client, "GET", f"{base}/c7", 404)
        nowhere = base.replace("s1", "zz")
        assert await refused(client, "GET", nowhere, 400) == "Eval set `zz` not found."
        await refused(client, "DELETE", f"{nowhere}/a", 404)
    stored = json.loads(file.read_text())
    assert stored["other"] == [1] and stored["eval_cases"][1]["future"] == 1, "what was not changed is as it was"


async def test_changes_at_the_same_time_do_not_undo_each_other(tmp_path: Path):
    written(tmp_path / "weather", eval_set(*(case(f"c{n}", turn("hi")) for n in range(12))))
    async with evals_served(tmp_path) as client, anyio.create_task_group() as tasks:
        for n in range(12):
            changed = case(f"c{n}", turn(f"hi {n}"))
            tasks.start_soon(lambda n=n, c=changed: ok(client, "PUT", f"{OLD}/s1/evals/c{n}", json=c))
    stored = json.loads((tmp_path / "weather" / "s1.evalset.json").read_text())["eval_cases"]
    said = [c["conversation"][0]["userContent"]["parts"][0]["text"] for c in stored]
    assert said == [f"hi {n}" for n in range(12)]


@pytest.mark.parametrize("verb", ["add_session", "add-session"])
async def test_a_stored_session_becomes_a_case(tmp_path: Path, verb: str):
    async with evals_served(tmp_path) as client:
        await ok(client, "POST", f"{OLD}/s1")
        await ok(client, "POST", "/apps/weather/users/alice/sessions/x1", json={"state": {"secret": 1}})
        for text in ("Weather in Paris?", "Hello"):
            message = {"role": "user", "parts": [{"text": text}]}
            body = {"appName": "weather", "userId": "alice", "sessionId": "x1", "newMessage": message}
            await ok(client, "POST", "/run", json=body)
        path, body = f"{NEW}/s1/{verb}", {"evalId": "c 1/", "sessionId": "x1", "userId": "alice"}
        assert await ok(client, "POST", path, json=body) is None
        found = (await ok(client, "GET", f"{NEW}/s1"))["eval_cases"][0]
        assert found["sessionInput"] == {"appName": "weather", "userId": "alice", "state": {}}
        assert found["creationTimestamp"] > 0
        first, second = found["conversation"]
        assert first["userContent"] == {"role": "user", "parts": [{"text": "Weather in Paris?"}]}
        assert first["finalResponse"]["parts"] == [{"text": "Paris: t 18."}]
        steps = first["intermediateData"]["invocationEvents"]
        assert [step["author"] for step in steps] == ["weather"] * 3 and "content" not in steps[2]
        assert first["creationTimestamp"] > 0 and first["invocationId"]
        assert second["userContent"]["parts"] == [{"text": "Hello"}]
        assert await ok(client, "GET", f"{OLD}/s1/evals/c%201%2F") == found
        assert "already exists in `s1`" in await refused(client, "POST", path, 400, json=body)
        await refused(client, "POST", path, 404, json={**body, "evalId": "c2", "sessionId": "zz"})
        await refused(client, "POST", path.replace("s1", "zz"), 404, json=body)
        await refused(client, "POST", path, 400, json={**body, "evalId": ""})
        await refused(client, "POST", path, 400, json={"evalId": "c3"})
        # and it can be played
        results = await ok(client, "POST", f"{NEW}/s1/run", json={"eval_metrics": [TRAJECTORY]})
        assert [r["finalEvalStatus"] for r in results["runEvalResults"]] == [1]
        sessions = await ok(client, "GET", "/apps/weather/users/alice/sessions")
        assert [s["id"] for s in sessions] == ["x1"], "an evaluation leaves no sessions behind"


async def test_evaluations_are_run_and_their_results_kept(tmp_path: Path):
    wrong = case("wrong", turn("Weather in Paris?", "Sunny", ("get_weather", {"city": "Rome"})))
    written(tmp_path / "weather", eval_set(PARIS, wrong))
    metrics = [TRAJECTORY, {"metricName": "response_match_score", "criterion": {"threshold": 0.5}}]
    async with evals_served(tmp_path) as client:
        answer = await ok(client, "POST", f"{NEW}/s1/run", json={"eval_metrics": metrics})
        assert list(answer) == ["runEvalResults"]
        first, second = answer["runEvalResults"]
        assert list(first) == [
            "evalSetFile",
            "evalSetId",
            "evalId",
            "finalEvalStatus",
            "evalMetricResults",
            "overallEvalMetricResults",
            "evalMetricResultPerInvocation",
            "userId",
            "sessionId",
        ]
        assert (first["evalSetId"], first["evalId"], first["finalEvalStatus"]) == ("s1", "paris", 1)
        assert (second["evalId"], second["finalEvalStatus"]) == ("wrong", 2)
        whole = {
            "metricName": "tool_trajectory_avg_score",
            "threshold": 1.0,
            "score": 1.0,
            "evalStatus": 1,
            "details": {},
        }
        assert first["overallEvalMetricResults"][0] == whole
        assert second["overallEvalMetricResults"][0] == {**whole, "score": 0.0, "evalStatus": 2}
        counts = {m["metricName"]: m["evalStatus"] for m in first["overallEvalMetricResults"][2:]}
        names = ["tool_call_count_v1", "inference_call_count_v1", "token_usage_v1", "invocation_duration_v1"]
        assert counts == dict.fromkeys(names, 4)
        turns = first["evalMetricResultPerInvocation"]
        assert list(turns[0]) == ["actualInvocation", "expectedInvocation", "evalMetricResults"]

        bare = await ok(client, "POST", f"{OLD}/s1/run_eval", json={"eval_ids": ["paris"], "eval_metrics": metrics})
        assert [r["evalId"] for r in bare] == ["paris"]
        legacy = await ok(client, "POST", "/apps/weather/eval_sets/s1/run_eval", json={"evalMetrics": [TRAJECTORY]})
        assert len(legacy) == 2

        ids = await ok(client, "GET", f"{DEV}/eval_results")
        assert len(ids) == 3 and ids == sorted(ids) and ids[0].startswith("weather_s1_")
        assert await ok(client, "GET", f"{DEV}/eval-results") == {"evalResultIds": ids}
        for base in ("eval_results", "eval-results"):
            stored = await ok(client, "GET", f"{DEV}/{base}/{ids[0]}")
            assert (stored["evalSetResultId"], stored["evalSetId"]) == (ids[0], "s1")
        kept = stored["evalCaseResults"][0]
        assert [e["author"] for e in kept["sessionDetails"]["events"]] == ["user", "weather", "weather", "weather"]
        assert {k: v for k, v in kept.items() if k != "sessionDetails"} == first
        assert await ok(client, "GET", f"/apps/weather/eval_results/{ids[0]}") == stored
        await refused(client, "GET", f"{DEV}/eval_results/none", 404)
    names = sorted(p.name for p in (tmp_path / "weather" / ".adk" / "eval_history").iterdir())
    assert names == [f"{id}.evalset_result.json" for id in ids]


async def test_results_of_adk_are_read_and_broken_ones_are_500(tmp_path: Path):
    history = tmp_path / "weather" / ".adk" / "eval_history"
    history.mkdir(parents=True)
    adk = {
        "eval_set_result_id": "r",
        "eval_set_id": "s",
        "eval_case_results": [{"final_eval_status": 2, "eval_metric_results": None, "session_id": "x", "eval_id": "c"}],
    }
    (history / "new.evalset_result.json").write_text(json.dumps(adk))
    (history / "old.evalset_result.json").write_text(json.dumps(json.dumps(adk)))
    (history / "bad.evalset_result.json").write_text("{")
    async with evals_served(tmp_path) as client:
        for id in ("new", "old"):
            found = await ok(client, "GET", f"{DEV}/eval_results/{id}")
            assert found["evalCaseResults"][0]["finalEvalStatus"] == 2
        assert "corrupt" in await refused(client, "GET", f"{DEV}/eval_results/bad", 500)
        await refused(client, "GET", f"{DEV}/eval_results/..%2Fbad", 400)


async def test_what_cannot_be_evaluated_is_400(tmp_path: Path):
    written(tmp_path / "weather", eval_set(PARIS))
    async with evals_served(tmp_path, weather(ScriptedModel())) as client:
        path = f"{NEW}/s1/run"
        assert (
            await refused(client, "POST", f"{NEW}/zz/run", 400, json={"eval_metrics": []}) == "Eval set `zz` not found."
        )
        assert "there is no metric 'nope'" in await refused(
            client, "POST", path, 400, json={"eval_metrics": [{"metric_name": "nope"}]}
        )
        own = {"metric_name": "x", "custom_function_path": "os:getcwd"}
        assert "not taken from requests" in await refused(client, "POST", path, 400, json={"eval_metrics": [own]})
        await refused(client, "POST", path, 400, json={})
        judged = {"metric_name": "safety_v1", "criterion": {"judge_model_options": {"judge_model": "nobody/x"}}}
        assert "nobody/x" in await refused(client, "POST", path, 400, json={"eval_metrics": [judged]})
        assert "there is no case 'zz'" in await refused(
            client, "POST", path, 404, json={"eval_metrics": [TRAJECTORY], "eval_case_ids": ["zz"]}
        )


async def test_rest_106_metrics_are_told_and_what_is_not_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def mine(metric: Any, actual: Any, expected: Any) -> float:
        """What I like."""
        return 1.0

    written(tmp_path / "weather", eval_set(PARIS))
    async with evals_served(tmp_path, metrics={"mine": mine}) as client:
        for base in (DEV, "/apps/weather"):
            found = (await ok(client, "GET", f"{base}/metrics-info"))["metricsInfo"]
            assert [list(m) for m in found] == [
                ["metricName", "description", "metricValueInfo", "requiresThreshold"]
            ] * len(found)
            by_name = {m["metricName"]: m for m in found}
            interval = {"minValue": 0.0, "openAtMin": False, "maxValue": 1.0, "openAtMax": False}
            assert by_name["tool_trajectory_avg_score"]["metricValueInfo"] == {"interval": interval}
            assert by_name["tool_trajectory_avg_score"]["requiresThreshold"] is True
            assert (by_name["token_usage_v1"]["metricValueInfo"], by_name["token_usage_v1"]["requiresThreshold"]) == (
                {},
                False,
            )
            assert by_name["mine"]["description"] == "What I like."
        answer = await ok(client, "POST", f"{NEW}/s1/run", json={"eval_metrics": [{"metric_name": "mine"}]})
        assert answer["runEvalResults"][0]["finalEvalStatus"] == 1
        stemmer.cache_clear()
        monkeypatch.setitem(sys.modules, "snowballstemmer", None)
        body = {"eval_metrics": [{"metric_name": "response_match_score", "threshold": 0.5}]}
        assert "not installed" in await refused(client, "POST", f"{NEW}/s1/run", 400, json=body)
    stemmer.cache_clear()


@asynccontextmanager
async def hung_up(root: Path) -> AsyncGenerator[Callable[[str, Any], Awaitable[None]]]:
    """`await hang(path, body)`: the client goes while the agent is at work; returns once the agent was stopped."""
    begun, ended = anyio.Event(), anyio.Event()

    async def wait(ctx: Any) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    agent = FunctionAgent(name="weather", function=wait)
    async with evals_served(root, agent) as client, anyio.create_task_group() as tasks:

        async def post(path: str, body: Any) -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                async with client.stream("POST", path, json=body) as response:
                    await response.read()

        async def hang(path: str, body: Any) -> None:
            tasks.start_soon(post, path, body)
            await begun.wait()
            scopes[0].cancel()
            await ended.wait()

        scopes: list[anyio.CancelScope] = []
        yield hang


async def test_a_client_that_hangs_up_stops_the_evaluation(tmp_path: Path):
    written(tmp_path / "weather", eval_set(case("c", turn("hi"))))
    async with hung_up(tmp_path) as hang:
        await hang(f"{NEW}/s1/run", {"eval_metrics": [TRAJECTORY]})
    assert not (tmp_path / "weather" / ".adk").exists()


@pytest.mark.parametrize("verb", ["run", "rebuild"])
async def test_a_client_that_hangs_up_stops_the_tests(tmp_path: Path, verb: str):
    (tmp_path / "weather" / "tests").mkdir(parents=True)
    (tmp_path / "weather" / "tests" / "a.json").write_text(json.dumps(RECORDED))
    async with hung_up(tmp_path) as hang:
        await hang(f"{DEV}/tests/{verb}", {})
    assert json.loads((tmp_path / "weather" / "tests" / "a.json").read_text()) == RECORDED


# ---- tests of an app

RECORDED = {
    "appName": "weather",
    "userId": "user",
    "id": "x1",
    "state": {},
    "events": [
        {
            "author": "user",
            "invocationId": "i-1",
            "content": {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
        },
        {
            "author": "weather",
            "invocationId": "i-1",
            "longRunningToolIds": [],
            "nodeInfo": {"path": "weather@1"},
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"id": "fc-1", "name": "get_weather", "args": {"city": "Paris"}}}],
            },
        },
        {
            "author": "weather",
            "invocationId": "i-1",
            "content": {
                "role": "user",
                "parts": [{"functionResponse": {"id": "fc-1", "name": "get_weather", "response": {"t": 18}}}],
            },
        },
        {"author": "weather", "invocationId": "i-1", "content": {"role": "model", "parts": [{"text": "It is 18."}]}},
    ],
}
"""A test as google-adk 2.13 wrote it."""


SHAPE = {
    "type": "object",
    "properties": {"zeta": {"type": "integer"}, "alpha": {"type": "object"}},
    "required": ["zeta", "alpha"],
}


async def test_tests_are_stored_listed_read_and_deleted(tmp_path: Path):
    tests = f"{DEV}/tests"
    async with evals_served(tmp_path) as client:
        assert await ok(client, "GET", tests) == []
        assert await refused(client, "GET", f"{tests}/a", 404) == "Test file not found"
        stored = {"status": "success", "file": "a.json"}
        assert await ok(client, "PUT", f"{tests}/a", json={"session_data": {"b": 1, "a": [1, "ü"]}}) == stored
        assert await ok(client, "PUT", f"{tests}/b.json", json={"sessionData": {}}) == {**stored, "file": "b.json"}
        assert await ok(client, "GET", tests) == ["a.json", "b.json"]
        assert (
            await ok(client, "GET", f"{tests}/a")
            == await ok(client, "GET", f"{tests}/a.json")
            == {"a": [1, "ü"], "b": 1}
        )
        assert await ok(client, "DELETE", f"{tests}/b") == {"status": "success"}
        assert await refused(client, "DELETE", f"{tests}/b", 404) == "Test file not found"
        for name in ("a%2Fb", "a%5Cb", "..%2Fx", ".a", "%20a"):
            for method in ("GET", "DELETE", "PUT"):
                await refused(
                    client,
                    method,
                    f"{tests}/{name}",
                    400,
                    **({"json": {"session_data": {}}} if method == "PUT" else {}),
                )
        await refused(client, "PUT", f"{tests}/c", 400, json={"session_data": []})
        await refused(client, "PUT", "/dev/apps/nobody/tests/c", 404, json={"session_data": {}})
    assert (
        tmp_path / "weather" / "tests" / "a.json"
    ).read_text() == '{\n  "a": [\n    1,\n    "ü"\n  ],\n  "b": 1\n}\n'


async def run_tests(client: Client, **query: str) -> list[str]:
    response = await client.post(f"{DEV}/tests/run", query=query)
    assert response.status == 200 and response.headers["content-type"] == "text/plain; charset=utf-8"
    return response.text.splitlines()


async def test_tests_are_played_again_with_the_recorded_answers(tmp_path: Path):
    model = ScriptedModel()
    async with evals_served(tmp_path, weather(model)) as client:
        assert await run_tests(client) == ["no tests"]
        await ok(client, "PUT", f"{DEV}/tests/good", json={"session_data": RECORDED})
        assert await run_tests(client) == ["weather/good.json PASSED", "1 passed"]
        events = [*RECORDED["events"][:2], {**RECORDED["events"][2]}, *RECORDED["events"][3:]]
        changed = json.loads(json.dumps(events).replace('{"t": 18}', '{"t": 19}'))
        await ok(client, "PUT", f"{DEV}/tests/bad", json={"session_data": {**RECORDED, "events": changed}})
        await ok(client, "PUT", f"{DEV}/tests/empty", json={"session_data": {"events": []}})
        await ok(client, "PUT", f"{DEV}/tests/wrong", json={"session_data": {"events": [{"author": 1}]}})
        (tmp_path / "weather" / "tests" / "broken.json").write_text("{")
        lines = await run_tests(client)
        assert lines[0] == "weather/bad.json FAILED"
        assert lines[1] == '    weather, step 2: recorded get_weather gave {"t":19}; now get_weather gave {"t":18}'
        assert lines[2] == "weather/broken.json FAILED" and "corrupt" in lines[3]
        assert lines[4] == "weather/empty.json SKIPPED" and lines[6] == "weather/good.json PASSED"
        assert lines[7] == "weather/wrong.json FAILED" and "this is not a session" in lines[8]
        assert lines[9] == "3 failed, 1 passed, 1 skipped"
        assert await run_tests(client, test_name="good.json") == ["weather/good.json PASSED", "1 passed"]
        await refused(client, "POST", f"{DEV}/tests/run?test_name=zz.json", 404)
        await refused(client, "POST", f"{DEV}/tests/run?test_name=..%2Fgood.json", 400)
    assert model.requests == [], "no model was asked"


async def test_an_agent_that_asks_its_model_more_often_than_recorded_fails(tmp_path: Path):
    agent = weather(after_model=lambda ctx, response: None)
    cut = {**RECORDED, "events": RECORDED["events"][:3]}
    async with evals_served(tmp_path, agent) as client:
        await ok(client, "PUT", f"{DEV}/tests/cut", json={"session_data": cut})
        lines = await run_tests(client)
        assert lines[0] == "weather/cut.json FAILED" and "once more than it did when this was recorded" in lines[1]


async def test_a_typed_answer_is_the_same_whatever_the_order_of_its_keys(tmp_path: Path):
    answer = {"zeta": 1, "alpha": {"y": 2, "b": [3]}}
    agent = weather(ScriptedModel(call("set_model_response", answer)), output_schema=SHAPE)
    async with evals_served(tmp_path, agent) as client:
        await ok(client, "POST", "/apps/weather/users/u/sessions/x", json={})
        message = {"role": "user", "parts": [{"text": "go"}]}
        body = {"appName": "weather", "userId": "u", "sessionId": "x", "newMessage": message}
        said = (await ok(client, "POST", "/run", json=body))[-1]["content"]["parts"][0]["text"]
        assert json.loads(said) == answer and said.index("zeta") < said.index("alpha")
        session = await ok(client, "GET", "/apps/weather/users/u/sessions/x")
        await ok(client, "PUT", f"{DEV}/tests/typed", json={"session_data": session})
        assert await run_tests(client) == ["weather/typed.json PASSED", "1 passed"]


async def test_tests_are_recorded_anew_with_the_real_model(tmp_path: Path):
    async with evals_served(tmp_path) as client:
        await ok(client, "PUT", f"{DEV}/tests/good", json={"session_data": RECORDED})
        assert await ok(client, "POST", f"{DEV}/tests/rebuild", query={"test_name": "good.json"}) == {
            "status": "success"
        }
        new = await ok(client, "GET", f"{DEV}/tests/good")
        assert [(e["id"], e["invocationId"], e["author"]) for e in new["events"]] == [
            ("e-1", "i-1", "user"),
            ("e-2", "i-1", "weather"),
            ("e-3", "i-1", "weather"),
            ("e-4", "i-1", "weather"),
        ]
        assert new["events"][1]["content"] == RECORDED["events"][1]["content"]
        assert new["events"][3]["content"]["parts"] == [{"text": "Paris: t 18."}]
        assert not any("timestamp" in e for e in new["events"])
        assert {k: v for k, v in new.items() if k != "events"} == {k: v for k, v in RECORDED.items() if k != "events"}
        assert await run_tests(client) == ["weather/good.json PASSED", "1 passed"]
        await ok(client, "POST", f"{DEV}/tests/rebuild")
        assert await ok(client, "GET", f"{DEV}/tests/good") == new
        await refused(client, "POST", f"{DEV}/tests/rebuild?test_name=zz", 404)


async def test_nothing_is_written_when_a_test_cannot_be_recorded(tmp_path: Path):
    async with evals_served(tmp_path, weather(ScriptedModel(ValueError("secret text")))) as client:
        await ok(client, "PUT", f"{DEV}/tests/good", json={"session_data": RECORDED})
        said = await refused(client, "POST", f"{DEV}/tests/rebuild", 500)
        assert "good.json could not be recorded" in said and "secret text" not in said
        assert await ok(client, "GET", f"{DEV}/tests/good") == RECORDED


def test_the_root_must_be_a_folder(tmp_path: Path):
    with pytest.raises(ConfigError, match="which is no folder"):
        App(weather(), protocols=[Evals(root=tmp_path / "none")])


async def test_the_openapi_document_knows_the_routes(tmp_path: Path):
    async with connect(App(LlmAgent(name="a", model="demo"), protocols=["rest", Evals(root=tmp_path)])) as client:
        assert (await client.get("/apps/a/eval_sets")).json() == []
        assert (await client.get("/api/dev/apps/a/eval-sets")).json() == {"evalSetIds": []}
        assert (await client.get("/openapi.json")).status == 200
