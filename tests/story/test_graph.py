"""The graph routes: the agents of an app as a tree, and as pictures (spec rest 1.3, 5.3, 10.1)."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from polyport import (
    AgentTool,
    App,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    SequentialAgent,
    SessionKey,
    Tool,
    ToolContext,
    make_tool,
)
from polyport.protocols.debug.mount import Debug
from polyport.testing import ScriptedModel, call, connect
from polyport.workflow import DEFAULT, START, Workflow, route
from support.debugging import Said, debugging, get

GREY, DONE, WENT = "#cccccc", "#0F5223", "#69CB87"
SVG = "{http://www.w3.org/2000/svg}"


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def other() -> str:
    """Another tool."""
    return "x"


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


def nodes(dot: str) -> dict[str, dict[str, str]]:
    """Node name -> its attributes."""
    lines = [line.strip() for line in dot.splitlines()]
    found = [re.fullmatch(r'"((?:[^"\\]|\\.)*)" \[(.*)\]', line) for line in lines]
    return {match[1]: _attributes(match[2]) for match in found if match}


def edges(dot: str) -> dict[tuple[str, str], dict[str, str]]:
    """(from, to) -> its attributes."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)" -> "((?:[^"\\]|\\.)*)" \[(.*)\]', dot)
    return {(one, two): _attributes(rest) for one, two, rest in found}


def _attributes(text: str) -> dict[str, str]:
    pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^,\]]+)', text)
    return {name: value.strip('"') for name, value in pairs}


async def event_dot(talk: Any, event: dict[str, Any], prefix: str = "", query: str = "") -> str:
    answer = await get(talk, f"{prefix}{talk.path}/events/{event['id']}/graph{query}")
    assert set(answer) == {"dotSrc"}
    return answer["dotSrc"]


@pytest.mark.parametrize("prefix", ["", "/dev", "/api", "/api/dev"])
async def test_rest_103_the_picture_of_an_event(prefix: str):
    root = llm("top", call("weather", {"city": "Rome"}, "c1"), "Sunny.", tools=[weather, other])
    async with debugging(root) as talk:
        called, answered, said = await talk.run()
        dot = await event_dot(talk, said, prefix)
        assert dot.startswith("digraph AgentGraph")
        assert 'bgcolor="#333537" rankdir=LR' in dot
        assert nodes(dot) == {
            "top": {"label": "🤖 top", "shape": "ellipse", "style": "filled", "color": DONE, "fontcolor": GREY},
            "weather": {"label": "🔧 weather", "shape": "box", "style": "rounded", "color": GREY, "fontcolor": GREY},
            "other": {"label": "🔧 other", "shape": "box", "style": "rounded", "color": GREY, "fontcolor": GREY},
        }
        plain = {"color": GREY, "arrowhead": "none"}
        assert edges(dot) == {("top", "weather"): plain, ("top", "other"): plain}

        dot = await event_dot(talk, called, prefix)
        assert {name for name, node in nodes(dot).items() if node["color"] == DONE} == {"top", "weather"}
        assert edges(dot) == {("top", "weather"): {"color": WENT, "arrowhead": "normal"}, ("top", "other"): plain}

        dot = await event_dot(talk, answered, prefix)
        assert {name for name, node in nodes(dot).items() if node["color"] == DONE} == {"top", "weather"}
        back = {"color": WENT, "arrowhead": "normal", "dir": "back"}
        assert edges(dot) == {("top", "weather"): back, ("top", "other"): plain}


async def test_rest_103_what_is_not_there_is_404():
    async with debugging(llm("top", "hi")) as talk:
        (event,) = await talk.run()
        assert (await get(talk, f"{talk.path}/events/nope/graph", status=404))["error"] == "event not found"
        await get(talk, talk.path.replace("s1", "s9") + f"/events/{event['id']}/graph", status=404)
        await get(talk, f"/apps/nobody/users/u1/sessions/s1/events/{event['id']}/graph", status=404)


async def test_the_picture_of_an_event_is_its_users():
    async with debugging(llm("top", "hi"), auth=Said()) as talk:
        headers = {"x-user": "u1"}
        assert (await talk.client.post(talk.path, headers=headers)).status == 200
        (event,) = (await talk.client.post("/run", json=talk.body(), headers=headers)).json()
        path = f"{talk.path}/events/{event['id']}/graph"
        await get(talk, path, x_user="u1")
        await get(talk, path, status=403, x_user="eve")
        await get(talk, path, status=401)


def team() -> SequentialAgent:
    """`team` runs `first`, then `loop` over `draft` and `check`, then `fan` of `left` and `right`."""
    loop = LoopAgent(name="loop", sub_agents=[llm("draft"), llm("check", tools=[weather])])
    fan = ParallelAgent(
        name="fan", sub_agents=[llm("left", description="Left."), llm("right", sub_agents=[llm("deep")])]
    )
    return SequentialAgent(name="team", description="All.", sub_agents=[llm("first", tools=[weather]), loop, fan])


async def test_pictures_of_flows_are_frames_and_edges_in_order():
    async with debugging(team()) as talk:
        dot = (await get(talk, "/dev/apps/team/graph"))["dotSrc"]
        for name in ("team (SequentialAgent)", "loop (LoopAgent)", "fan (ParallelAgent)"):
            assert f'label="{name}" style=rounded color="white"' in dot
        assert dot.count("subgraph") == 3
        assert dot.count("{") == dot.count("}")
        assert set(nodes(dot)) == {"first", "weather", "draft", "check", "left", "right", "deep"}
        assert set(edges(dot)) == {
            ("first", "weather"),
            ("check", "weather"),
            ("first", "draft"),
            ("draft", "check"),
            ("check", "draft"),
            ("check", "left"),
        }
        assert DONE not in dot
        inside = dot[dot.index('"cluster_fan"') :]
        assert nodes(inside[: inside.index("}")]).keys() == {"left", "right", "deep"}


async def test_rest_104_the_tree_of_agents():
    async with debugging(team()) as talk:
        for prefix in ("", "/api"):
            built = await get(talk, f"{prefix}/dev/apps/team/build_graph")
            assert set(built) == {"root_agent", "readme"} and built["readme"] == ""

            def check(node: dict[str, Any]) -> list[str]:
                assert isinstance(node["sub_agents"], list)
                return [node["name"], *(name for child in node["sub_agents"] for name in check(child))]

            assert check(built["root_agent"]) == [
                "team", "first", "loop", "draft", "check", "fan", "left", "right", "deep",
            ]  # fmt: skip
            assert built["root_agent"]["description"] == "All."
            assert "description" not in built["root_agent"]["sub_agents"][0]
        await get(talk, "/dev/apps/nobody/build_graph", status=404)


async def test_rest_104_pictures_by_name_and_by_path():
    async with debugging(team()) as talk:
        base = "/dev/apps/team/build_graph_image"
        whole = await get(talk, base)
        assert list(whole) == ["team"] and whole["team"]["dotSrc"].startswith("digraph AgentGraph")
        for path in ("team/fan/right", "fan/right", "fan@1/right@c7", "team%2Ffan%2Fright"):
            picture = await get(talk, f"{base}?node={path}")
            assert set(picture) == {"dotSrc"}
            assert set(nodes(picture["dotSrc"])) == {"right", "deep"}
        assert (await get(talk, f"{base}?node=team"))["dotSrc"] == whole["team"]["dotSrc"]
        for path in ("nobody", "team/nobody", "fan/right/deep/more", "right", "/"):
            await get(talk, f"{base}?node={path}", status=404)
        await get(talk, "/dev/apps/nobody/build_graph_image", status=404)


async def test_pictures_on_light_paper():
    async with debugging(team()) as talk:
        for path in ("graph", "build_graph_image"):
            dark = str(await get(talk, f"/dev/apps/team/{path}?dark_mode=true"))
            light = str(await get(talk, f"/dev/apps/team/{path}?dark_mode=false"))
            assert "#333537" in dark and 'bgcolor="#ffffff"' in light
            assert dark == str(await get(talk, f"/dev/apps/team/{path}"))
        await get(talk, "/dev/apps/team/graph?dark_mode=perhaps", status=400)


async def test_names_cannot_break_out_of_a_picture():
    def plain() -> str:
        """A tool."""
        return "x"

    tool = make_tool(plain)
    tool.name = 'a"]; evil [label="\\\n'
    async with debugging(llm("top", tools=[tool])) as talk:
        dot = (await get(talk, "/dev/apps/top/graph"))["dotSrc"]
        assert "evil" in dot
        assert len(nodes(dot)) == 2 and len(edges(dot)) == 1


async def test_an_agent_that_is_a_tool_is_a_tool():
    async with debugging(llm("top", tools=[AgentTool(llm("helper"))])) as talk:
        dot = (await get(talk, "/dev/apps/top/graph"))["dotSrc"]
        assert nodes(dot)["helper"]["shape"] == "box"
        assert set(edges(dot)) == {("top", "helper")}


async def test_empty_flows_are_drawn():
    flow = SequentialAgent(
        name="flow", sub_agents=[LoopAgent(name="none"), llm("a"), ParallelAgent(name="no"), llm("b")]
    )
    async with debugging(flow, Debug()) as talk:
        dot = (await get(talk, "/dev/apps/flow/graph"))["dotSrc"]
        assert set(edges(dot)) == {("a", "b")}
        assert "none (LoopAgent)" in dot


def flow() -> Workflow:
    """START -> sort -> (yes: writer, default: weather) -> done."""

    def sort(text: str) -> Any:
        return route("yes", text)

    def done(text: str) -> str:
        return text + "!"

    writer = llm("writer", "Written.", tools=[other])
    edges = [(START, sort, {"yes": writer, DEFAULT: make_tool(weather)}), (writer, done)]
    return Workflow("flow", edges=edges)


async def test_the_picture_of_a_workflow():
    async with debugging(flow()) as talk:
        dot = (await get(talk, "/dev/apps/flow/graph"))["dotSrc"]
        assert 'label="flow (Workflow)"' in dot
        assert {name: node["label"] for name, node in nodes(dot).items()} == {
            "flow/START": "START",
            "flow/sort": "ƒ sort",
            "writer": "🤖 writer",
            "other": "🔧 other",
            "flow/weather": "🔧 weather",
            "flow/done": "ƒ done",
        }
        found = edges(dot)
        assert {pair: edge.get("label") for pair, edge in found.items() if edge["arrowhead"] == "vee"} == {
            ("flow/START", "flow/sort"): None,
            ("flow/sort", "writer"): "yes",
            ("flow/sort", "flow/weather"): "default",
            ("writer", "flow/done"): None,
        }
        events = await talk.run("hi")
        picture = nodes(await event_dot(talk, events[-1]))
        assert {name for name, node in picture.items() if node["color"] == DONE} == {"flow/done"}


async def test_rest_104_a_workflow_has_its_graph_in_the_tree():
    async with debugging(SequentialAgent(name="top", sub_agents=[flow(), llm("last")])) as talk:
        built = (await get(talk, "/dev/apps/top/build_graph"))["root_agent"]
        assert "graph" not in built
        graph = built["sub_agents"][0]["graph"]
        assert [node["name"] for node in graph["nodes"]] == ["sort", "writer", "weather", "done"]
        assert {"source": "START", "target": "sort"} in graph["edges"]
        dot = (await get(talk, "/dev/apps/top/graph"))["dotSrc"]
        assert ("flow/done", "last") in edges(dot)


async def test_a_graph_is_a_picture_when_asked_for_and_names_cannot_become_markup():
    class Odd(Tool):
        name = 'x"><script>alert(1)</script>'
        description = "Odd."

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return None

    one = LlmAgent(name="one", model=ScriptedModel("hello"), tools=[Odd()])
    flow = LoopAgent(name="flow", sub_agents=[one, LlmAgent(name="two", model=ScriptedModel("ok"))], max_iterations=1)
    app = App(flow, protocols=["rest", "debug"])
    async with connect(app) as client:
        await app.ask("hi", user="u", session="s")
        session = await app.stores.sessions.get(SessionKey("flow", "u", "s"))
        whole = await client.get("/dev/apps/flow/graph?format=svg&dark_mode=false")
        event = await client.get(f"/apps/flow/users/u/sessions/s/events/{session.events[1].id}/graph?format=svg")
        assert (await client.get("/dev/apps/flow/graph?format=png")).status == 400
    assert whole.headers["content-type"] == "image/svg+xml; charset=utf-8"
    assert "default-src 'none'" in whole.headers["content-security-policy"]
    root = ElementTree.fromstring(whole.text)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["flow (LoopAgent)", "🤖 one", f"🔧 {Odd.name}", "🤖 two"]
    assert not list(root.iter(f"{SVG}script"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    frames = [box.attrib for box in root.iter(f"{SVG}rect") if "x" in box.attrib]
    boxes = [{side: float(box[side]) for side in ("x", "y", "width", "height")} for box in frames]
    assert len(boxes) == 2, "the frame of the flow, and the tool"
    for box in boxes:
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width and 0 <= box["y"] <= box["y"] + box["height"] <= height
    assert len(list(root.iter(f"{SVG}path"))) == 2 + 3, "two arrow heads; to the tool, to the next, and back"
    done = [e for e in ElementTree.fromstring(event.text).iter(f"{SVG}ellipse") if e.attrib["fill"] == "#0F5223"]
    assert len(done) == 1
