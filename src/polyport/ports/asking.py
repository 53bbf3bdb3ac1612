"""How tools and agents ask a human: for approval of a call, for an input, for a credential (spec core 3.11, 4.6).

Parts of ToolContext and RunContext. Who asks then returns: the engine pauses the run, and calls again when the answer has come.
Nothing here waits.
"""

from typing import Any

from msgspec import structs

from polyport.codec import json_safe
from polyport.data.asking import Question, Reply, answers, input_call, input_question
from polyport.data.content import Content, Part
from polyport.data.event import Event, EventActions, ToolConfirmation
from polyport.data.model import Schema
from polyport.data.session import Session
from polyport.errors import BadRequest


class Questions:
    """The asking half of ToolContext."""

    __slots__ = ()

    actions: EventActions
    function_call_id: str
    questions: list[Question]
    reply: Reply

    @property
    def confirmation(self) -> ToolConfirmation | None:
        """What the human said to the latest request for approval of this call; None when nobody was asked."""
        return self.reply.confirmation

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All answers to this call's `request_input`, in the order of the questions."""
        return self.reply.inputs

    @property
    def credential(self) -> dict[str, Any] | None:
        """The answer to `request_credential`, in the run that it was sent to. It is stored nowhere; keep it so."""
        return self.reply.credential

    @property
    def input(self) -> Any:
        """The latest of `inputs`; None when there is none."""
        return self.inputs[-1] if self.inputs else None

    def request_confirmation(self, hint: str = "", payload: Any = None) -> None:
        """Ask a human to approve this call, then return: what the tool returns now tells the model that it waits. Once approved
        the call is carried out again, with `confirmation` set; a declined one is not.

        BadRequest for a payload without a JSON form, and for a call without an id."""
        asked = ToolConfirmation(hint=str(hint), payload=json_safe(payload, "the payload of a confirmation"))
        self._pause()
        known = self.actions.requested_tool_confirmations
        self.actions.requested_tool_confirmations = {**known, self.function_call_id: asked}

    def request_input(self, message: str, response_schema: Schema | None = None, payload: Any = None) -> None:
        """Ask a human for something, then return. The call is carried out again with `inputs` set when all its questions are
        answered. A `response_schema`, a JSON Schema, is kept to. BadRequest for what has no JSON form."""
        asked = input_question(message, response_schema, payload)
        self._pause()
        self.questions.append(asked)

    def request_credential(self, auth_config: dict[str, Any]) -> None:
        """Ask the client for a credential, then return. The call is carried out again with `credential` set. The client sees
        `auth_config`: it must hold no secret. BadRequest for what has no JSON form."""
        asked = Question(auth_config=json_safe(dict(auth_config), "auth_config"))
        self._pause()
        self.questions.append(asked)

    def _pause(self) -> None:
        if not self.function_call_id:
            raise BadRequest("a human can be asked for a call with an id only; this one has none")
        self.actions.skip_summarization = True


class AgentQuestions:
    """The asking half of RunContext, for agents that are no LLM agents."""

    __slots__ = ()

    paused: bool
    """Whether something was asked: an agent that then returns nothing waits for the answer."""

    @property
    def session(self) -> Session:
        raise NotImplementedError

    @property
    def invocation_id(self) -> str:
        raise NotImplementedError

    @property
    def agent_name(self) -> str:
        raise NotImplementedError

    async def emit(self, event: Event) -> Event:
        raise NotImplementedError

    def event(self, **fields: Any) -> Event:
        raise NotImplementedError

    @property
    def answers(self) -> dict[str, Any]:
        """The answers to this agent's `request_input` in this run so far, by interrupt id, in the order of the questions."""
        return answers(self.session.events, self.invocation_id, self.agent_name)

    async def request_input(
        self, message: str, response_schema: Schema | None = None, payload: Any = None, interrupt_id: str = ""
    ) -> None:
        """Ask a human, then return from `run`: the run pauses, and the agent runs again, from its start, when `answers` has the
        answer. The id must be new in the session; a blank one is generated. A `response_schema`, a JSON Schema, is kept to.
        BadRequest for what has no JSON form."""
        event = self.event()
        call, wanted = input_call(interrupt_id or "adk-" + event.id, input_question(message, response_schema, payload))
        content = Content(role="model", parts=[Part(function_call=call)])
        await self.emit(
            structs.replace(event, content=content, requested_input=wanted, long_running_tool_ids=[call.id])
        )
        self.paused = True
