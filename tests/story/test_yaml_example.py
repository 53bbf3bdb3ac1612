"""The example in YAML does what its first lines promise, loaded as the command line loads it."""

import re
from pathlib import Path

from polyport import App
from polyport.cli.words import make_app
from polyport.data.session import SessionKey
from support.talk import said

FOLDER = Path(__file__).parents[2] / "examples/yaml_team"


def example() -> App:
    return make_app([str(FOLDER)])


def promised() -> list[str]:
    text = (FOLDER / "root_agent.yaml").read_text(encoding="utf-8")
    return re.findall(r"^#\s+(?:polyport run .* then:\s+)?([A-Z].*[?\d])$", text, re.MULTILINE)


async def test_the_team_finds_orders_and_pays_large_refunds_after_a_human_agreed():
    find, refund = promised()
    async with example() as app:
        assert list(app.trees) == ["yaml_team"]
        reply = await app.ask(find, session="s")
        assert "on its way to Oslo" in reply.text
        assert (await app.stores.sessions.get(SessionKey("yaml_team", "user", "s"))).state["order"] == 17

        reply = await app.ask(refund, session="s")
        assert [call.name for e in reply.events for call in e.calls] == [
            "transfer_to_agent",
            "refund",
            "adk_request_confirmation",
        ]
        assert reply.outcome.status == "paused"
        (asked,) = [call for e in reply.events for call in e.calls if call.name == "adk_request_confirmation"]
        reply = await app.ask(said(asked.id, asked.name, {"confirmed": True}), session="s")
        assert {"result": "refunded 250 for order 17"} in [r.response for e in reply.events for r in e.responses]


async def test_small_refunds_need_nobody():
    async with example() as app:
        reply = await app.ask("Refund 50 for order 18")
        assert reply.outcome.status != "paused" and "refunded 50 for order 18" in reply.text


def test_every_agent_has_the_rules_of_the_house():
    app = example()
    root = app.trees["yaml_team"].root
    assert "Be brief" in getattr(root, "global_instruction", "")
