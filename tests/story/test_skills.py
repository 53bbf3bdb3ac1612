"""Skills in runs: what the model is told, what it may read, and what it may not (spec core 6.5, 12.35)."""

from pathlib import Path
from typing import Any

import pytest

from polyport import App, LlmAgent
from polyport.data.content import FunctionCall
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call
from polyport.tools.skills import SkillToolset
from support.talk import Serve

SKILL = """---
name: {name}
description: {description}
license: Apache-2.0
allowed-tools: Read, Bash(ls)
---
# How to

Follow references/guide.md.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    add(root, "weather", "How to read <maps> & 'charts'")
    add(root, "greet", "Say hello 你好")
    (root / "greet" / "references").mkdir()
    (root / "greet" / "references" / "guide.md").write_bytes("Say 你好 😀, caf".encode() + b"\xe9")
    (root / "greet" / "assets").mkdir()
    (root / "greet" / "assets" / "dot.png").write_bytes(b"\x89PNG\x00")
    (tmp_path / "secret").write_text("top secret")
    return root


def add(root: Path, name: str, description: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_text(SKILL.format(name=name, description=description), encoding="utf-8")


def read(path: Any, skill: Any = "greet", id: str = "") -> FunctionCall:
    return call("load_skill_resource", {"skill_name": skill, "resource_path": path}, id)


async def results(toolset: SkillToolset, *calls: FunctionCall, state: dict[str, Any] | None = None) -> list[Any]:
    """What each call gives, in a run of its own turn."""
    model = ScriptedModel(*calls, "done")
    got = await App(LlmAgent(name="app", model=model, tools=[toolset])).ask("go", state=state)
    assert got.text == "done", "whatever a tool says, the run goes on"
    return [r.response for event in got.events for r in event.responses]


async def test_the_model_is_told_of_the_skills_and_reads_one(folder: Path):
    model = ScriptedModel(call("load_skill", {"name": "greet"}), read("references/guide.md"), "hello")
    agent = LlmAgent(name="app", model=model, tools=[SkillToolset(folder)], instruction="Be brief.")
    got = await App(agent).ask("greet me")
    assert [tool.name for tool in model.requests[0].tools] == ["list_skills", "load_skill", "load_skill_resource"]
    system = model.requests[0].system
    assert system.startswith("Be brief.")
    assert "call `load_skill` with its name" in system
    assert system.partition("<available_skills>")[2] == (
        "\n<skill>\n<name>greet</name>\n<description>Say hello 你好</description>\n</skill>"
        "\n<skill>\n<name>weather</name>\n<description>How to read &lt;maps&gt; &amp; &#x27;charts&#x27;</description>"
        "\n</skill>\n</available_skills>"
    )
    skill, resource = [r.response for event in got.events for r in event.responses]
    assert skill == {
        "skill_name": "greet",
        "instructions": "# How to\n\nFollow references/guide.md.",
        "frontmatter": {
            "name": "greet",
            "description": "Say hello 你好",
            "license": "Apache-2.0",
            "allowed-tools": ["Read", "Bash(ls)"],
        },
        "resources": ["assets/dot.png", "references/guide.md"],
    }
    assert resource == {
        "skill_name": "greet",
        "resource_path": "references/guide.md",
        "content": "Say 你好 😀, caf\ufffd",
    }


async def test_without_skills_nothing_is_added(tmp_path: Path):
    model = ScriptedModel(call("list_skills"), "none")
    await App(LlmAgent(name="app", model=model, tools=[SkillToolset(tmp_path)])).ask("go")
    assert "kill" not in model.requests[0].system
    assert model.requests[1].contents[-1].responses[0].response == {"skills": []}


async def test_core_12_35_a_malformed_skill_does_not_break_the_others(folder: Path):
    (folder / "broken").mkdir()
    (folder / "broken" / "SKILL.md").write_text("no head")
    listed, loaded, lost = await results(
        SkillToolset(folder),
        call("list_skills"),
        call("load_skill", {"name": "weather"}),
        call("load_skill", {"name": "broken"}),
    )
    assert listed == {
        "skills": [
            {"name": "greet", "description": "Say hello 你好"},
            {"name": "weather", "description": "How to read <maps> & 'charts'"},
        ],
        "problems": ["broken/SKILL.md: the first line must be ---"],
    }
    assert loaded["skill_name"] == "weather"
    assert lost == {
        "error": "there is no skill 'broken' (broken/SKILL.md: the first line must be ---); "
        "the skills are: greet, weather"
    }


async def test_a_skill_that_comes_later_is_there_after_a_reload(folder: Path):
    toolset = SkillToolset(folder)
    add(folder, "wave", "Wave a hand")
    (listed,) = await results(toolset, call("list_skills"))
    assert [s["name"] for s in listed["skills"]] == ["greet", "weather"]
    await toolset.reload()
    (listed,) = await results(toolset, call("list_skills"))
    assert [s["name"] for s in listed["skills"]] == ["greet", "wave", "weather"]


@pytest.mark.parametrize(
    "path",
    [
        "etc/hosts",
        "/etc/hosts",
        "../../secret",
        "references/../../../secret",
        "references/link",
        "SKILL.md",
        "references\\..\\..\\secret",
    ],
)
async def test_FR_194_state_and_paths_never_lead_out_of_a_skill(serve: Serve, folder: Path, path: str):
    (folder / "greet" / "references" / "link").symlink_to(folder.parent / "secret")
    model = ScriptedModel(read(path), "done")
    agent = LlmAgent(name="app", model=model, tools=[SkillToolset(folder)])
    async with serve(agent, create=False) as talk:
        await talk.create(state={"root_directory": "/", "skills": "/", "folder": "/", "user:skills_dir": "/"})
        events = await talk.run("go", stateDelta={"app:root_directory": "/", "temp:skills": "/"})
    (answer,) = model.requests[1].contents[-1].responses
    assert "is not a file of a skill" in answer.response["error"] or "leads out" in answer.response["error"]
    assert "top secret" not in str(events)
    assert str(folder.parent) not in str(events), "an error does not tell where things are"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (
            read("references/none.md"),
            "no file 'references/none.md'; its files are: assets/dot.png, references/guide.md",
        ),
        (read("assets/dot.png"), "'assets/dot.png' is no text but a file of image/png with 5 bytes"),
        (read(7), "the path of a file is needed, as text"),
        (read("references/guide.md", skill="nope"), "there is no skill 'nope'; the skills are: greet, weather"),
        (read("references/guide.md", skill="../greet"), "there is no skill '../greet'"),
        (read("references/guide.md", skill=None), "the name of a skill is needed"),
        (call("load_skill"), "the name of a skill is needed"),
        (call("load_skill", {"name": ["greet"]}), "the name of a skill is needed"),
    ],
)
async def test_what_cannot_be_read_is_told_to_the_model(folder: Path, asked: FunctionCall, error: str):
    (answer,) = await results(SkillToolset(folder), asked)
    assert error in answer["error"]


async def test_a_file_over_the_limit(folder: Path):
    (folder / "greet" / "references" / "big.md").write_bytes(b"x" * 301)
    toolset = SkillToolset(folder, max_file_bytes=300)
    (answer,) = await results(toolset, read("references/big.md"))
    assert answer == {"error": "'references/big.md' has more than 300 bytes"}


async def test_two_skills_of_one_name_are_found_at_start(folder: Path, tmp_path: Path):
    add(tmp_path / "more", "greet", "Another one")
    with pytest.raises(ConfigError, match="two skills are named 'greet'"):
        SkillToolset(folder, tmp_path / "more")
