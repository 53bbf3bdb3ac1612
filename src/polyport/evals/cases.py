"""Eval sets as data: sets, cases and turns, in the JSON of ADK's evaluation (spec rest 10.1).

Read from files and from the eval routes, in camelCase and snake_case; written as ADK writes them: the members of a set in
snake_case, all below in camelCase. Made and compared by the rest of the package. Does no I/O.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field, structs

from polyport.codec import Data, convert, decode
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.model import Usage
from polyport.errors import BadRequest, PolyportError

ASKING = frozenset({"adk_request_confirmation", "adk_request_credential", "adk_request_input"})
"""Calls that the engine makes to ask a human; no tool of the agent's."""


def _map() -> dict[str, Any]:
    return {}  # factories of our own, so that the field is written even when it is empty


def _number() -> float:
    return 0.0


def _text() -> str:
    return ""


class RubricContent(Data, frozen=True, kw_only=True):
    text_property: str = ""


class Rubric(Data, frozen=True, kw_only=True):
    """One property that an answer, or the use of tools, should have. `type` says for which metric, "" for all."""

    rubric_id: str
    rubric_content: RubricContent
    description: str = ""
    type: str = ""


class InvocationEvent(Data, frozen=True, kw_only=True):
    """A step on the way to the answer. The step that is the answer has no content: that is the `finalResponse`."""

    author: str = field(default_factory=_text)
    content: Content | None = None
    grounding_metadata: dict[str, Any] | None = None
    usage_metadata: Usage | None = None
    model_version: str = ""


class IntermediateData(Data, frozen=True, kw_only=True):
    """What came before the answer: as steps (`invocationEvents`), or in the older form as lists by kind."""

    invocation_events: list[InvocationEvent] = []
    tool_uses: list[FunctionCall] = []
    tool_responses: list[FunctionResponse] = []
    intermediate_responses: list[tuple[str, list[Part]]] = []


class AgentDetails(Data, frozen=True, kw_only=True):
    name: str
    instructions: str = ""
    tool_declarations: list[Any] = []


class AppDetails(Data, frozen=True, kw_only=True):
    """What the models were told, by agent."""

    agent_details: dict[str, AgentDetails] = field(default_factory=dict[str, AgentDetails])


class Invocation(Data, frozen=True, kw_only=True):
    """One turn: what the user said, and what came of it or should come of it. Durations are seconds."""

    invocation_id: str = field(default_factory=_text)
    user_content: Content
    final_response: Content | None = None
    intermediate_data: IntermediateData | None = None
    creation_timestamp: float = field(default_factory=_number)
    duration: float | None = None
    model_duration: float | None = None
    tool_duration: float | None = None
    rubrics: list[Rubric] = []
    app_details: AppDetails | None = None

    @property
    def text(self) -> str:
        """The text of the answer, or ""."""
        return self.final_response.text if self.final_response is not None else ""

    @property
    def calls(self) -> list[FunctionCall]:
        """The tool calls in order, without those that ask a human."""
        if self.intermediate_data is None:
            return []
        inner = [call for content in self._contents() for call in content.calls]
        return [call for call in [*self.intermediate_data.tool_uses, *inner] if call.name not in ASKING]

    @property
    def responses(self) -> list[FunctionResponse]:
        """What the tools gave, in order."""
        if self.intermediate_data is None:
            return []
        return [*self.intermediate_data.tool_responses, *(r for c in self._contents() for r in c.responses)]

    @property
    def steps(self) -> list[InvocationEvent]:
        return self.intermediate_data.invocation_events if self.intermediate_data is not None else []

    def _contents(self) -> Iterator[Content]:
        return (step.content for step in self.steps if step.content is not None)


class SessionInput(Data, frozen=True, kw_only=True):
    """The session in which a case is played. `app_name` is not heeded: a case is played against the app that is evaluated."""

    app_name: str = field(default_factory=_text)
    user_id: str = field(default_factory=_text)
    session_id: str = ""
    state: dict[str, Any] = field(default_factory=_map)


class EvalCase(Data, frozen=True, kw_only=True):
    """`conversation` or `conversation_scenario`; the latter, for a simulated user, is kept but cannot be played."""

    eval_id: str
    conversation: list[Invocation] | None = None
    conversation_scenario: dict[str, Any] | None = None
    session_input: SessionInput | None = None
    creation_timestamp: float = field(default_factory=_number)
    rubrics: list[Rubric] = []
    final_session_state: dict[str, Any] = field(default_factory=_map)


class EvalSet(Data, frozen=True, kw_only=True):
    eval_set_id: str
    name: str = ""
    description: str = ""
    eval_cases: list[EvalCase] = []
    creation_timestamp: float = 0.0


class EvalSetShape(Struct, omit_defaults=True):
    """An eval set as ADK writes it, in files and answers."""

    eval_set_id: str
    name: str
    eval_cases: list[EvalCase] = field(default_factory=list[EvalCase])
    creation_timestamp: float = field(default_factory=_number)
    description: str = ""


def set_shape(found: EvalSet) -> EvalSetShape:
    """What to encode for a set."""
    return EvalSetShape(
        found.eval_set_id,
        found.name or found.eval_set_id,
        found.eval_cases,
        found.creation_timestamp,
        found.description,
    )


def read_set(text: bytes, where: str) -> EvalSet:
    """The set in a file. Members that are not known are passed over. BadRequest says what is wrong, and in which file."""
    try:
        return checked_set(decode(text, EvalSet, unknown="drop"))
    except PolyportError as error:
        raise BadRequest(f"{where} is not an eval set: {error}") from None


def read_case(raw: Any) -> EvalCase:
    """A case from plain data. BadRequest."""
    return checked_case(convert(raw, EvalCase, unknown="drop"))


def checked_set(found: EvalSet) -> EvalSet:
    """BadRequest for a case without a conversation, or two of one id."""
    ids = [checked_case(case).eval_id for case in found.eval_cases]
    twice = next((id for id, times in Counter(ids).items() if times > 1), None)
    if twice is not None:
        raise BadRequest(f"two cases have the evalId {twice!r}")
    return found


def checked_case(case: EvalCase) -> EvalCase:
    if not case.eval_id:
        raise BadRequest("a case has no evalId", "evalId")
    if (case.conversation is None) == (case.conversation_scenario is None):
        raise BadRequest(
            f"case {case.eval_id!r} must have either a conversation or a conversationScenario", "conversation"
        )
    return case


def with_ids(content: Content, ids: dict[str, str]) -> Content:
    """A user's message whose answers to calls name other ids: those of the calls that were really made."""
    if not any(r.id in ids for r in content.responses):
        return content
    parts = [
        structs.replace(part, function_response=structs.replace(part.function_response, id=new))
        if part.function_response is not None and (new := ids.get(part.function_response.id))
        else part
        for part in content.parts
    ]
    return structs.replace(content, parts=parts)
