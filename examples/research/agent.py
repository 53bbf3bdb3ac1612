"""Agents put together without a line of glue: two work at the same time, then a third sums up in a typed answer.

    polyport run examples/research      then: Look up Python and count its letters

`ParallelAgent` runs its agents side by side, `SequentialAgent` one after the other. `output_schema` makes the model answer with
exactly these fields, and `output_key` puts the answer into the state of the session, where your program finds it.
"""

from dataclasses import dataclass

from polyport import LlmAgent, ParallelAgent, SequentialAgent, ToolContext

FACTS = {
    "python": "a programming language from 1991",
    "sqlite": "a database in one file",
    "rome": "the capital of Italy",
}


def look_up(topic: str, ctx: ToolContext) -> dict:
    """Look a topic up in the encyclopedia.

    Args:
        topic: one word, such as Python
    """
    ctx.state["topic"] = topic
    ctx.state["fact"] = FACTS.get(topic.lower(), "nothing is known about it")
    return {"fact": ctx.state["fact"]}


def count_letters(word: str, ctx: ToolContext) -> dict:
    """Count the letters of a word."""
    ctx.state["letters"] = len(word)
    return {"letters": len(word)}


def read_notes(ctx: ToolContext) -> dict:
    """Read the notes: what was looked up, and how many letters were counted."""
    return {key: ctx.state.get(key) for key in ("topic", "fact", "letters")}


@dataclass
class Summary:
    """What the research comes to."""

    topic: str
    fact: str
    letters: int


root_agent = SequentialAgent(
    name="research",
    description="Looks a word up and counts its letters at the same time, then sums up.",
    sub_agents=[
        ParallelAgent(
            name="gather",
            sub_agents=[
                LlmAgent(
                    name="facts",
                    model="demo",
                    instruction="Look the user's word up with the tool.",
                    tools=[look_up],
                ),
                LlmAgent(
                    name="letters",
                    model="demo",
                    instruction="Count the letters of the user's word with the tool.",
                    tools=[count_letters],
                ),
            ],
        ),
        LlmAgent(
            name="writer",
            model="demo",
            instruction="Read the notes, then sum up.",
            tools=[read_notes],
            output_schema=Summary,
            output_key="summary",
        ),
    ],
)
