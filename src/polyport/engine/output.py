"""What an LLM agent's final answer becomes: text checked against a schema, and the state under `output_key`.

Used by the turn loop and by the agent envelope (an answer from a callback counts as well: FR-037). Pure.
The state is written once, by the final answer, and parsed when there is a schema (a divergence from spec core 3.14, see
tests/requirements.py).
"""

import re
from typing import Any

import msgspec
from msgspec import structs

from polyport import codec
from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.engine.spec import LlmSpec
from polyport.errors import BadRequest
from polyport.ports.agent import OutputSchema

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def parse_answer(text: str, output: OutputSchema) -> Any:
    """The value that `text` holds, taken out of fences or prose if need be. BadRequest when nothing fits the schema."""
    problem: BadRequest | None = None
    for candidate in _candidates(text):
        try:
            raw = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
        try:
            return codec.json_safe(output.parse(raw), "the answer")
        except BadRequest as error:
            problem = problem or error
    raise problem or BadRequest("the answer is not JSON")


def _candidates(text: str) -> list[str]:
    found = [text.strip(), *(m.strip() for m in _FENCE.findall(text))]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        found.append(text[start : end + 1])
    return found


def as_json(content: Content, value: Any) -> Content:
    """`content` with its answer text replaced by the JSON of `value`; all other parts stay, and the signature of the text
    (FR-080)."""
    said = [p for p in content.parts if p.text and not p.thought]
    signature = next((p.thought_signature for p in reversed(said) if p.thought_signature), None)
    answer = Part(text=codec.encode(value).decode(), thought_signature=signature)
    kept = [p for p in content.parts if p.thought or p.text is None]
    return structs.replace(content, parts=[*kept, answer])


def remember(agent: LlmSpec, event: Event, output: OutputSchema | None) -> Event:
    """`event` with the agent's output in its state delta, if it is the agent's final answer and says something."""
    if agent.mode == "task":
        return event  # its output is what it finishes with
    if not agent.output_key or event.author != agent.name or event.content is None or not event.final:
        return event
    text = event.content.text
    if not text.strip():
        return event
    value: Any = text
    if output is not None:
        try:
            value = parse_answer(text, output)
        except BadRequest:
            return event  # never half written
    delta = {**(event.actions.state_delta or {}), agent.output_key: value}
    return structs.replace(event, actions=structs.replace(event.actions, state_delta=delta))
