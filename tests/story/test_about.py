"""What a server says about itself: health, readiness, version, apps, and basics of every answer (spec rest 8, 1-8, 86-92)."""

import platform
from pathlib import Path
from typing import Any

import pytest

from polyport import App, FunctionAgent, LlmAgent, RunContext, SequentialAgent
from polyport.errors import Unavailable
from polyport.ports.stores import Stores
from polyport.protocols.guard import Guard
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, connect
from polyport.version import VERSION
from support.talk import Serve

JSON = "application/json; charset=UTF-8"


async def silent(ctx: RunContext) -> None:
    return None


WEATHER = FunctionAgent(name="weather", function=silent)


async def test_rest_1_7_health(serve: Serve):
    async with serve(WEATHER) as talk:
        response = await talk.client.get("/health")
        assert (response.status, response.body) == (200, b'{"status":"ok"}\n')
        assert response.headers["content-type"] == "application/json"
        head = await talk.client.request("HEAD", "/health")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "16")


@pytest.mark.parametrize("path", ["/health", "/ready", "/version"])
async def test_rest_1_2_no_credentials_are_needed(path: str):
    class Closed(Guard):
        async def admit(self, request: Any) -> Any:
            raise AssertionError("nobody may ask")

    async with connect(App(WEATHER, guard=Closed())) as client:
        response = await client.get(path, headers={"origin": "https://elsewhere.test"})
        assert response.status == 200


async def test_rest_2_version_has_exactly_three_keys(serve: Serve):
    async with serve(WEATHER) as talk:
        said = (await talk.client.get("/version")).json()
        assert said == {"version": VERSION, "language": "python", "language_version": platform.python_version()}


async def test_rest_3_4_apps_are_listed_by_name(serve: Serve):
    agents = dict.fromkeys(("zoo", "alpha", "Mid"), WEATHER)
    async with serve(agents) as talk:
        for query in ("", "?relative_path=./", "?detailed=false"):
            for _ in range(2):
                assert (await talk.client.get("/list-apps" + query)).json() == ["Mid", "alpha", "zoo"]
        detailed = (await talk.client.get("/list-apps?detailed=true")).json()
        assert [app["name"] for app in detailed["apps"]] == ["Mid", "alpha", "zoo"]
        assert detailed["apps"][1] == (await talk.client.get("/apps/alpha/app-info")).json()
        assert (await talk.client.get("/list-apps?detailed=maybe")).status == 400


async def test_app_info_tells_the_agents_and_their_tools(serve: Serve):
    def look(city: str) -> str:
        """Look out of the window."""
        return city

    hostile = "<script>alert(1)</script> {x} \u2028"
    helper = LlmAgent(name="helper", model=ScriptedModel(), instruction=lambda ctx: "secret")
    root = LlmAgent(
        name="root",
        model=ScriptedModel(),
        description=hostile,
        instruction=hostile,
        tools=[look],
        sub_agents=[helper],
    )
    async with serve({"app": root}) as talk:
        response = await talk.client.get("/apps/app/app-info")
    assert response.headers["content-type"] == JSON and response.headers["x-content-type-options"] == "nosniff"
    assert response.json() == {
        "name": "app",
        "rootAgentName": "root",
        "description": hostile,
        "language": "python",
        "agents": {
            "root": {
                "name": "root",
                "description": hostile,
                "instruction": hostile,
                "tools": ["look"],
                "subAgents": ["helper"],
            },
            "helper": {"name": "helper", "description": "", "instruction": "", "tools": [], "subAgents": []},
        },
    }


async def test_app_info_of_a_root_that_is_no_llm_and_of_no_app(serve: Serve):
    root = SequentialAgent(name="steps", sub_agents=[FunctionAgent(name="one", function=silent)])
    async with serve(root) as talk:
        info = (await talk.client.get("/apps/steps/app-info")).json()
        assert info["agents"]["steps"]["subAgents"] == ["one"] and info["agents"]["one"]["tools"] == []
        response = await talk.client.get("/apps/nope/app-info")
        assert response.status == 404
        assert "'nope'" in response.json()["error"] and "steps" in response.json()["error"]


async def test_not_ready_once_the_store_is_closed(serve: Serve, tmp_path: Path):
    async with serve(WEATHER, stores=f"sqlite:///{tmp_path}/a.db") as talk:
        assert (await talk.client.get("/ready")).json() == {"status": "ok"}
        await talk.server.stores.sessions.aclose()
        response = await talk.client.get("/ready")
        assert response.status == 503 and "session store is closed" in response.json()["error"]
        assert (await talk.client.get("/health")).status == 200
        response = await talk.client.get(talk.path)
        assert response.status == 503 and set(response.json()) == {"error", "detail"}


@pytest.mark.parametrize("error", [Unavailable("the database is down"), OSError("postgres://bob:secret@db refused")])
async def test_not_ready_while_the_store_fails_and_no_secret_is_told(serve: Serve, error: Exception):
    class Failing(MemorySessions):
        down = False

        async def ping(self) -> None:
            if self.down:
                raise error

    store = Failing()
    async with serve(WEATHER, stores=Stores(store)) as talk:
        store.down = True
        response = await talk.client.get("/ready")
        assert response.status == 503 and "secret" not in response.text
        assert (await talk.client.get("/health")).status == 200
        store.down = False
        assert (await talk.client.get("/ready")).status == 200


async def test_rest_5_88_92_what_is_not_served_is_404_without_a_redirect(serve: Serve):
    async with serve(WEATHER) as talk:
        for path in (
            "/nope",
            "/apix/list-apps",
            "/api/nope",
            "/apps",
            "/apps/weather",
            "/list-apps/x",
            "/api/api/list-apps",
        ):
            response = await talk.client.get(path)
            assert response.status == 404 and set(response.json()) == {"error", "detail"}
            assert "location" not in response.headers


async def test_rest_6_a_wrong_method_is_405_and_says_which_are_right(serve: Serve):
    async with serve(WEATHER) as talk:
        response = await talk.client.put("/run", json={})
        assert response.status == 405 and response.headers["allow"] == "OPTIONS, POST"
        assert set(response.json()) == {"error", "detail"}


GETS = [
    "/version",
    "/ready",
    "/list-apps",
    "/apps/weather/app-info",
    "/apps/weather/users/u1/sessions",
    "/openapi.json",
]


@pytest.mark.parametrize(
    "path", [*GETS, "/apps/weather/users/u1/sessions/s1", "/apps/weather/users/u1/sessions/s1/artifacts"]
)
async def test_rest_8_86_87_every_json_answer_is_one_line_under_all_its_paths(serve: Serve, path: str):
    async with serve(WEATHER) as talk:
        for spelling in (path, path + "/", path + "//", "/api" + path):
            response = await talk.client.get(spelling)
            assert response.status == 200
            assert response.headers["content-type"] == JSON
            assert response.body.endswith(b"\n") and response.body.count(b"\n") == 1
            assert response.headers["content-length"] == str(len(response.body))


async def test_rest_10_errors_say_the_same_to_go_and_to_python_clients(serve: Serve):
    async with serve(WEATHER) as talk:
        response = await talk.client.get("/apps/weather/users/u1/sessions/zz")
        assert response.headers["content-type"] == JSON
        body = response.json()
        assert set(body) == {"error", "detail"} and body["error"] == body["detail"] and "zz" in body["error"]
