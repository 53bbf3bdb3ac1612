"""The examples do what their first lines promise, with the demo model, loaded as the command line loads them."""

import re
from pathlib import Path
from typing import Any

import pytest

from polyport import App
from polyport.cli.words import make_app
from polyport.data.session import SessionKey

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(p.parent.name for p in EXAMPLES.glob("*/agent.py"))


def example(name: str) -> App:
    return make_app([str(EXAMPLES / name)])


def promised(name: str) -> list[str]:
    """The questions that the example's docstring says to ask."""
    text = (EXAMPLES / name / "agent.py").read_text(encoding="utf-8")
    doc = text.split('"""')[1]
    return re.findall(r"then:\s+(.+)", doc) + re.findall(r"^ {40,}([A-Z].+)$", doc, re.MULTILINE)


async def state(app: App, name: str) -> dict[str, Any]:
    return (await app.stores.sessions.get(SessionKey(name, "user", "s"))).state


def test_every_example_is_tested():
    assert NAMES == ["research", "travel", "weather"]
    assert all(promised(name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_served_under_the_name_of_its_folder(name: str):
    assert list(example(name).trees) == [name]


def test_all_are_served_together():
    in_yaml = [p.parent.name for p in EXAMPLES.glob("*/root_agent.yaml")]  # see test_yaml_example.py
    assert sorted(make_app([str(EXAMPLES)]).trees) == sorted([*NAMES, *in_yaml])


async def test_weather_answers_for_two_cities():
    async with example("weather") as app:
        reply = await app.ask(promised("weather")[0])
        calls = [call.args for event in reply.events for call in event.calls]
        assert calls == [{"city": "Paris"}, {"city": "Rome"}]
        assert "Paris" in reply.text and "18" in reply.text and "Rome" in reply.text and "27" in reply.text
        reply = await app.ask("weather in Berlin")
        assert "known are oslo, paris, rome, tokyo" in reply.text


async def test_travel_hands_over_and_shares_state():
    first, second = promised("travel")
    async with example("travel") as app:
        reply = await app.ask(first, session="s")
        assert {e.author for e in reply.events} == {"travel"} and "Rome is planned" in reply.text
        assert (await state(app, "travel"))["city"] == "Rome"

        reply = await app.ask(second, session="s")
        assert [call.name for e in reply.events for call in e.calls] == ["transfer_to_agent", "find_hotel"]
        assert reply.events[-1].author == "hotels"
        assert reply.text == "Albergo Sole in Rome has 4 stars."

        reply = await app.ask("Plan a trip to Oslo", session="s")  # and back
        assert reply.events[0].author == "hotels" and reply.events[-1].author == "travel"
        assert (await state(app, "travel"))["city"] == "Oslo"

        reply = await app.ask("Find a hotel", session="other")
        assert "no trip yet" in reply.text


async def test_research_ends_with_a_typed_summary_in_state():
    async with example("research") as app:
        reply = await app.ask(promised("research")[0], session="s")
        authors = [e.author for e in reply.events]
        assert set(authors[:-1]) == {"facts", "letters", "writer"} and authors[-1] == "writer"
        assert min(authors.index("facts"), authors.index("letters")) < authors.index("writer")
        assert (await state(app, "research"))["summary"] == {
            "topic": "Python",
            "fact": "a programming language from 1991",
            "letters": 6,
        }
