"""Agent cards: what they say, where they are, caches, proxies, signatures, and the extended card (spec a2a 1.2, 1.3, 3.7)."""

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from click.testing import CliRunner
from joserfc import jwk, jws
from joserfc.errors import JoseError
from msgspec import structs

from polyport import Agent, App, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, make_tool
from polyport.cli.main import main
from polyport.errors import ConfigError
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.settings import A2aSettings
from polyport.protocols.guard import Guard
from polyport.testing import ScriptedModel, connect
from polyport.wire import a2a_sign
from polyport.wire.a2a_card import AgentSkill
from polyport.workflow import START, Workflow, node
from support.a2a_wires import BINDINGS, Failed, Said, Wire, door, echoing, state, wired

CARD = "/.well-known/agent-card.json"
V10 = {"a2a-version": "1.0"}
bindings = pytest.mark.parametrize("binding", BINDINGS)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def look_up(word: str) -> str:
    return word


def llm(name: str = "app", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(), **fields)


async def card_of(agent: Any, path: str = CARD, headers: Any = V10, guard: Guard | None = None, **options: Any) -> Any:
    app = App(agent, protocols=["rest", A2a(**options)], guard=guard)
    async with connect(app) as client:
        response = await client.get(path, headers=headers)
        assert response.status == 200, response.text
        return response.json()


async def test_T001_the_card_is_public_and_complete():
    card = await card_of(llm(description="Adds."), guard=door(), headers={**V10, "authorization": "Bearer nobody"})
    required = "name description supportedInterfaces version capabilities defaultInputModes defaultOutputModes skills"
    assert set(required.split()) <= set(card)
    assert "null" not in json.dumps(card)
    assert (card["name"], card["description"], card["version"]) == ("app", "Adds.", "1.0.0")
    assert card["capabilities"] == {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": False,
        "extensions": [{"uri": "https://google.github.io/adk-docs/a2a/a2a-extension/"}],
    }


@bindings
async def test_T002_the_interfaces_are_where_they_say(binding: str):
    names = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}
    async with wired(binding, echoing(), settings=A2aSettings(versions=("1.0",))) as wire:
        card = (await wire.client.get(CARD)).json()
        found = {i["protocolBinding"]: i["url"] for i in card["supportedInterfaces"]}
        assert set(found) == {"JSONRPC", "HTTP+JSON", *([] if binding != "grpc" else ["GRPC"])}
        url = found[names[binding]]
        if binding == "grpc":
            assert url == f"localhost:{wire.server.grpc.port}"
        elif binding == "rest":
            assert (await wire.client.get(url.removeprefix("http://localhost") + "/tasks")).status == 200
        else:
            wire.path = url.removeprefix("http://localhost")
            assert state((await wire.send())["task"]) == "completed"


async def test_T003_T004_FR_185_caches():
    app = App(llm(), protocols=["rest", "a2a"])
    async with connect(app) as client:
        first = await client.get(CARD, headers=V10)
        tag, changed = first.headers["etag"], first.headers["last-modified"]
        assert first.headers["cache-control"] == "public, max-age=300"
        for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = await client.get(CARD, headers={**V10, "if-none-match": given})
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert (await client.get(CARD, headers={**V10, "if-modified-since": changed})).status == 304
        for headers in (
            {"if-none-match": '"x"'},
            {"if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT"},
            {"if-modified-since": "yesterday"},
            {"if-modified-since": changed, "if-none-match": '"x"'},
        ):
            assert (await client.get(CARD, headers={**V10, **headers})).status == 200
        head = await client.request("HEAD", CARD, headers=V10)
        assert (head.status, head.body, head.headers["etag"]) == (200, b"", tag)
    newer = App(llm(), protocols=[A2a(card=CardConfig(version="1.0.1", max_age_s=5))])
    async with connect(newer) as client:
        response = await client.get(CARD, headers={**V10, "if-none-match": tag})
        assert (response.status, response.headers["cache-control"]) == (200, "public, max-age=5")


async def test_T005_members_of_0_3_only_for_those_who_may_need_them():
    old = {"url", "preferredTransport", "additionalInterfaces", "protocolVersion", "supportsAuthenticatedExtendedCard"}
    app = App(llm(), protocols=["a2a"])
    async with connect(app) as client:
        strict = (await client.get(CARD, headers=V10)).json()
        for headers, query in (
            ({}, {}),
            ({"a2a-version": "0.3"}, {}),
            ({"a2a-version": "0.3.0"}, {}),
            ({}, {"version": "0.3"}),
        ):
            union = await client.get(CARD, headers=headers, query=query)
            assert union.headers["vary"] == "A2A-Version"
            assert set(union.json()) == {*strict, *old}
    assert not old & set(strict)
    card = union.json()
    theirs = [i["url"] for i in card["supportedInterfaces"] if i["protocolVersion"] == "0.3"]
    assert card["url"] == theirs[0]
    assert [i["url"] for i in card["additionalInterfaces"]] == theirs
    assert not old & set(await card_of(llm(), headers={}, card=CardConfig(union=False)))
    assert not old & set(await card_of(llm(), headers={}, settings=A2aSettings(versions=("1.0",))))
    assert old <= set(await card_of(llm(), card=CardConfig(union=True)))


# ---- signatures


def checked(card: dict[str, Any], key: dict[str, Any]) -> bool:
    """JCS and JWS by the libraries, apart from the server's code."""
    signature = next(s for s in card["signatures"] if _header(s)["kid"] == key["kid"])
    payload = rfc8785.dumps({k: v for k, v in card.items() if k != "signatures"})
    text = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    try:
        jws.deserialize_json({"payload": text, **signature}, jwk.import_key(key), algorithms=[key["alg"]])
    except JoseError:
        return False
    return True


def _header(signature: dict[str, Any]) -> dict[str, Any]:
    text = signature["protected"]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


async def test_T006_T007_T008_signatures():
    keys = [a2a_sign.new_key("k1"), a2a_sign.new_key("k2", "Ed25519")]
    config = CardConfig(keys=keys, jku="https://keys.test/jwks.json")
    app = App(llm(), protocols=[A2a(card=config, settings=A2aSettings(streaming=False))])
    async with connect(app) as client:
        response = await client.get(CARD, headers=V10)
        card = response.json()
        public = {k["kid"]: k for k in (await client.get("/.well-known/jwks.json")).json()["keys"]}
        assert not any("d" in key for key in public.values())
        for kid in ("k1", "k2"):
            assert checked(card, public[kid])
            assert not checked({**card, "name": "eve"}, public[kid])
        assert [_header(s)["typ"] for s in card["signatures"]] == ["JOSE", "JOSE"]
        assert _header(card["signatures"][0])["jku"] == "https://keys.test/jwks.json"
        assert card["capabilities"]["streaming"] is False
        assert "documentationUrl" not in card
        # Readers of 0.3 get the same signatures; their members are not signed.
        union = (await client.get(CARD)).json()
        assert a2a_sign.verify(union, public.values()) in public
        # Made anew the signatures differ, and the card is the same.
        assert response.headers["etag"].startswith("W/")
        assert (await client.get(CARD, headers={**V10, "if-none-match": response.headers["etag"]})).status == 304


async def test_T006_the_command_that_makes_a_key(tmp_path: Path):
    file = tmp_path / "my key.jwk"
    done = CliRunner().invoke(main, ["a2a", "key", str(file)])
    assert done.exit_code == 0, done.output
    (public,) = json.loads(done.stdout)["keys"]
    assert (public["kid"], public["alg"], "d" in public) == ("my key", "ES256", False)
    assert "jwks.json" in done.stderr and str(file) in done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    card = await card_of(llm(), card=CardConfig(keys=[file]))
    assert checked(card, public) and a2a_sign.verify(card, [public]) == "my key"
    before = file.read_bytes()
    again = CliRunner().invoke(main, ["a2a", "key", str(file), "--alg", "Ed25519"])
    assert again.exit_code == 1 and "is there already" in again.output and file.read_bytes() == before
    nowhere = CliRunner().invoke(main, ["a2a", "key", str(tmp_path / "no" / "key"), "--kid", "x"])
    assert nowhere.exit_code == 1 and "cannot make" in nowhere.output


@pytest.mark.parametrize(("text", "match"), [(None, "cannot read"), ("no json", "polyport a2a key"), ("[1]", "a JWK")])
def test_a2a_a_file_that_holds_no_key_is_found_at_start(tmp_path: Path, text: str | None, match: str):
    file = tmp_path / "k"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=match):
        App(llm(), protocols=[A2a(card=CardConfig(keys=[str(file)]))])


async def test_a2a_a_key_that_cannot_sign_is_found_at_start():
    with pytest.raises(ConfigError, match="kid"):
        App(llm(), protocols=[A2a(card=CardConfig(keys=[{"kty": "oct", "k": "AAAA"}]))])
    async with connect(App(llm(), protocols=["a2a"])) as client:
        assert (await client.get("/.well-known/jwks.json")).status == 404


# ---- skills


async def test_T010_one_skill_for_the_agent_and_one_for_each_tool():
    secret = "Never tell anybody that the code is 1234."
    agent = llm(description="Adds.", instruction=secret, global_instruction=secret, tools=[add, look_up])
    card = await card_of(agent)
    assert secret not in json.dumps(card)
    assert [(s["id"], s["name"], s["description"], s["tags"]) for s in card["skills"]] == [
        ("app", "model", "Adds.", ["llm"]),
        ("app-add", "add", "Add two numbers.", ["llm", "tools"]),
        ("app-look_up", "look_up", "Tool: look_up", ["llm", "tools"]),
    ]
    assert (await card_of(llm()))["description"] == "An LLM-based agent"


async def test_a_graph_is_a_skill_and_what_calls_its_tools_is_none():
    writer = LlmAgent(name="writer", model=ScriptedModel(), description="Writes.")
    graph = Workflow("graph", edges=[(START, node(make_tool(add)), writer)], description="Adds, then writes.")
    skills = (await card_of(graph))["skills"]
    told = [(s["id"], s["description"], s["tags"]) for s in skills]
    assert told == [
        ("graph", "Adds, then writes.", ["graph_workflow"]),
        ("graph-sub-agents", "Orchestrates: Writes.", ["graph_workflow", "orchestration"]),
        ("writer_writer", "Writes.", ["sub_agent:writer", "llm"]),
    ]


@pytest.mark.parametrize(
    ("kind", "tag", "course"),
    [
        (
            SequentialAgent,
            "sequential_workflow",
            "First, this agent will read. Finally, this agent will execute the b agent.",
        ),
        (ParallelAgent, "parallel_workflow", "This agent will read and execute the b agent simultaneously."),
        (
            LoopAgent,
            "loop_workflow",
            "This agent will read and execute the b agent in a loop (max unlimited iterations).",
        ),
    ],
)
async def test_T010_workflows_say_what_they_do(kind: type[Agent], tag: str, course: str):
    card = await card_of(kind(name="flow", sub_agents=[llm("a", description="Read.", tools=[add]), llm("b")]))
    skills = {s["id"]: s for s in card["skills"]}
    assert card["description"] == skills["flow"]["description"] == course
    assert skills["flow"]["tags"] == [tag]
    assert skills["flow-sub-agents"]["description"] == "Orchestrates: Read.; No description"
    assert skills["flow-sub-agents"]["tags"] == [tag, "orchestration"]
    assert (skills["a_a"]["name"], skills["a_a"]["tags"]) == ("a: model", ["sub_agent:a", "llm"])
    assert list(skills) == ["flow", "flow-sub-agents", "a_a", "a_a-add", "b_b"]


async def test_T010_ids_of_skills_are_unique():
    agent = llm("a", tools=[make_tool(add, name="t_a-t")], sub_agents=[llm("a-t")])
    assert [s["id"] for s in (await card_of(agent))["skills"]] == ["a", "a-t_a-t", "a-t_a-t-2"]
    mine = AgentSkill(id="s", name="s", description="s")
    with pytest.raises(ConfigError, match="used twice"):
        App(agent, protocols=[A2a(card=CardConfig(skills=[mine, mine]))])
    assert [s["id"] for s in (await card_of(agent, card=CardConfig(skills=[mine])))["skills"]] == ["s"]


# ---- where


@pytest.mark.parametrize("path", ["", "/a2a", "/a2a/v1/invoke", "/a2a/invoke", "/a2a/app", "/api", "/api/a2a/app"])
async def test_FR_184_the_card_is_below_every_url_where_it_is_looked_for(path: str):
    card = await card_of(llm(), path + CARD)
    prefix = "/api" if path.startswith("/api") else ""
    assert card["supportedInterfaces"][0]["url"] == f"http://localhost{prefix}/a2a/app"
    assert (await card_of(llm(), path + "/.well-known/agent.json"))["name"] == "app"


async def test_a2a_urls_behind_proxies_and_sub_paths():
    trusting = Guard(["*"], ["*"], trusted_proxy=True)

    async def url(headers: dict[str, str], root: str = "", guard: Guard = trusting, **options: Any) -> str:
        app = App(llm(), protocols=[A2a(**options)], guard=guard)

        async def mounted(scope: Any, receive: Any, send: Any) -> None:
            await app.asgi({**scope, "root_path": root} if scope["type"] == "http" else scope, receive, send)

        async with connect(mounted) as client:
            card = (await client.get(root + CARD, headers={**V10, **headers})).json()
            return card["supportedInterfaces"][0]["url"]

    assert await url({"host": "agents.test:8443"}) == "http://agents.test:8443/a2a/app"
    proxied = {"x-forwarded-host": "public.test", "x-forwarded-proto": "https"}
    assert await url(proxied) == "https://public.test/a2a/app"
    assert await url(proxied, "/agents/x") == "https://public.test/agents/x/a2a/app"
    behind = {**proxied, "x-forwarded-prefix": "/team-a/agents/"}
    assert await url(behind) == "https://public.test/team-a/agents/a2a/app"
    assert await url(behind, "/x") == "https://public.test/team-a/agents/x/a2a/app"
    assert await url(behind, guard=Guard(["*"], ["*"])) == "http://localhost/a2a/app", "no proxy is trusted"
    for odd in ("//evil.test", "x", "/a?b", "/a#b", "/a/../b", "/a b", "/%0d\x7f", "/" + "a/" * 40):
        assert await url({**proxied, "x-forwarded-prefix": odd}) == "https://public.test/a2a/app", odd
    fixed = CardConfig(url="https://fixed.test/base/")
    assert await url(proxied, card=fixed) == "https://fixed.test/base/a2a/app"


async def test_a2a_hosts_that_are_not_ours_get_no_card():
    app = App(llm(), protocols=["a2a"], guard=Guard(["agents.test"]))
    async with connect(app) as client:
        assert (await client.get(CARD, headers={"host": "agents.test"})).status == 200
        assert (await client.get(CARD, headers={"host": "evil.test"})).status == 403


async def test_a2a_each_app_may_have_a_card_of_its_own():
    cards = {"a": CardConfig(name="Anna", version="7.1")}
    app = App([llm("a"), llm("b")], protocols=[A2a(card=cards)])
    async with connect(app) as client:
        first = (await client.get("/a2a/a" + CARD, headers=V10)).json()
        second = (await client.get("/a2a/b" + CARD, headers=V10)).json()
    assert (first["name"], first["version"], second["name"], second["version"]) == ("Anna", "7.1", "b", "1.0.0")
    with pytest.raises(ConfigError, match="invoke"):
        App([llm("a"), llm("invoke")], protocols=["a2a"])


# ---- the extended card


async def extended(wire: Wire, said: Said) -> Any:
    return await wire.call("GetExtendedAgentCard", {}, said)


def for_caller(call: Any, card: Any) -> Any:
    if call.caller == "bob":
        return None
    return structs.replace(card, description=f"for {call.caller}")


@bindings
async def test_T009_FR_182_the_extended_card(binding: str):
    async with wired(binding, llm()) as wire:
        with pytest.raises(Failed) as caught:
            await extended(wire, Said(caller="ann"))
        assert caught.value.reason == "UNSUPPORTED_OPERATION"
    async with wired(binding, llm(), card=CardConfig(extended=True)) as wire:
        with pytest.raises(Failed) as caught:
            await extended(wire, Said())
        assert caught.value.reason == "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    async with wired(binding, llm(), card=CardConfig(extended=for_caller)) as wire:
        public = (await wire.client.get(CARD, headers=V10)).json()
        assert public["capabilities"]["extendedAgentCard"] is True
        card = await extended(wire, Said(caller="ann"))
        assert (card["description"], card["skills"]) == ("for ann", public["skills"])
        assert [i["url"] for i in card["supportedInterfaces"]] == [i["url"] for i in public["supportedInterfaces"]]
        with pytest.raises(Failed) as caught:
            await extended(wire, Said(caller="bob"))
        assert caught.value.reason == "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
        with pytest.raises(Failed) as caught:
            await extended(wire, Said())
        assert caught.value.reason == "UNAUTHENTICATED"
        if binding == "jsonrpc":
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
            response = await wire.client.post("/a2a", json=body)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
        elif binding == "rest":
            response = await wire.client.get("/extendedAgentCard")
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
            response = await wire.client.get("/extendedAgentCard", headers=Said(caller="ann").headers)
            assert response.headers["cache-control"] == "private, no-store"


async def test_T009_over_grpc_alone_only_grpc_has_a_place():
    async with wired("grpc", llm(), card=CardConfig(extended=for_caller)) as wire:
        card = await extended(wire, Said(caller="ann"))
        assert {i["protocolBinding"] for i in card["supportedInterfaces"]} == {"GRPC"}
    async with wired("grpc", llm(), card=CardConfig(extended=for_caller, url="https://a.test")) as wire:
        card = await extended(wire, Said(caller="ann"))
        assert card["supportedInterfaces"][0]["url"] == "https://a.test/a2a/app"
        assert card["supportedInterfaces"][2]["url"] == f"a.test:{wire.server.grpc.port}"


async def test_T083_the_extended_card_in_0_3():
    config = CardConfig(extended=for_caller, extended_for_all=True)
    async with wired("rest", llm(), card=config) as wire:
        body = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        card = (await wire.client.post("/a2a", json=body)).json()["result"]
        assert (card["description"], card["protocolVersion"]) == ("for ", "0.3.0")
        assert card["supportsAuthenticatedExtendedCard"] is True
        assert (await wire.client.get("/v1/card")).json() == card
