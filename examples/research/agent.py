"""Agents put together: two look things up side by side, a third writes a typed summary of what they found."""

from dataclasses import dataclass

from polyport import LlmAgent, ParallelAgent, SequentialAgent

FACTS = {"python": "a language from 1991", "nats": "a messaging system in Go", "sqlite": "a database in one file"}


def look_up(topic: str) -> dict:
    """Look a topic up in the encyclopedia.

    Args:
        topic: one word, such as Python
    """
    return {"topic": topic, "fact": FACTS.get(topic.lower(), "nothing is known about it")}


def count_letters(word: str) -> dict:
    """Count the letters of a word."""
    return {"word": word, "letters": len(word)}


@dataclass
class Summary:
    """What the run comes to."""

    title: str
    fact: str
    letters: int


root_agent = SequentialAgent(
    name="research",
    description="Looks a word up and counts its letters at the same time, then sums up.",
    sub_agents=[
        ParallelAgent(
            name="gather",
            sub_agents=[
                LlmAgent(name="facts", model="demo", instruction="Look it up.", tools=[look_up], output_key="fact"),
                LlmAgent(
                    name="letters", model="demo", instruction="Count.", tools=[count_letters], output_key="letters"
                ),
            ],
        ),
        LlmAgent(
            name="writer",
            model="demo",
            instruction="Sum up. Fact: {fact} Letters: {letters}",
            output_schema=Summary,
            output_key="summary",
        ),
    ],
)
