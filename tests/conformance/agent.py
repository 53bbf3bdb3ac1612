"""What the kits expect of the agent behind a server (spec a2a-conformance 4): one behaviour for each kind of message id.

The agent makes the artifacts; the hooks of the executor choose the states that no agent of the ADK has.
"""

import os
from typing import Any

import anyio
from msgspec import Struct, structs

from polyport import Agent, Content, Event, FunctionAgent, Part
from polyport.data.content import Blob, FileData
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.protocols.a2a.settings import A2aSettings, Execution, ExecutorConfig, TaskRejected
from polyport.protocols.a2a.tasks import NewStatus
from polyport.wire import a2a
from polyport.wire.a2a_card import AgentCard

REQUIRED = "urn:a2a:tck:required-extension"
RESUBSCRIBE = "test-resubscribe-message-id"
WAIT_S = 2 * float(os.environ.get("TCK_STREAMING_TIMEOUT", "2"))
"""How long the task of a resubscription lasts."""

FILE = Part(inline_data=Blob(mime_type="text/plain", data=b"tck", display_name="output.txt"))
LINK = Part(
    file_data=FileData(mime_type="text/plain", file_uri="https://example.com/output.txt", display_name="output.txt")
)
DATA = Part(
    inline_data=Blob(
        mime_type="text/plain", data=b'<a2a_datapart_json>{"key": "value", "count": 42}</a2a_datapart_json>'
    )
)

ARTIFACTS: dict[str, list[Part]] = {
    "tck-artifact-text": [Part(text="Generated text content")],
    "tck-artifact-file": [FILE],
    "tck-artifact-file-url": [LINK],
    "tck-artifact-data": [DATA],
    "tck-stream-001": [Part(text="Stream hello from TCK")],
    "tck-stream-003": [Part(text="Stream task lifecycle")],
    "tck-stream-ordering-001": [Part(text="Ordered output")],
    "tck-stream-artifact-text": [Part(text="Streamed text content")],
    "tck-stream-artifact-file": [FILE],
    "tck-stream-artifact-chunked": [Part(text="chunk-1 "), Part(text="chunk-2")],
}
"""Beginning of a message's id -> the parts that come out, each in an event of its own."""
MESSAGES = {"tck-complete-task": "Hello from TCK", "tck-stream-002": "Done"}
"""Those that complete with a message; any other id is answered by an echo."""
OTHERS = ("tck-message-response", "tck-input-required", "tck-reject-task", RESUBSCRIBE)
KINDS = sorted((*ARTIFACTS, *MESSAGES, *OTHERS), key=len, reverse=True)


class Options(Struct, frozen=True, kw_only=True):
    """What the card says it can do; `v03` is the agent of the kit for 0.3, `codes` the table of error codes."""

    push: bool = False
    extended: bool = False
    streaming: bool = True
    required_ext: bool = False
    v03: bool = False
    codes: str = "1.0.1"
    grpc: str = ""
    wait_s: float = WAIT_S
    pause_s: float = 1.0
    """How long the agent of 0.3 thinks."""


def kind_of(message_id: str) -> str:
    """The behaviour that a message asks for, "" for an echo."""
    return next((kind for kind in KINDS if message_id.startswith(kind)), "")


def contract(options: Options) -> tuple[Agent, A2a]:
    """The agent, and how it is served."""

    async def run(ctx: Any) -> None:
        kind = kind_of(ctx.config.metadata["message_id"])
        if kind == RESUBSCRIBE:
            await anyio.sleep(options.wait_s)
        elif options.v03:
            await anyio.sleep(options.pause_s)
        for part in ARTIFACTS.get(kind, []):
            await ctx.emit(Event(content=Content(role="model", parts=[part])))

    agent = FunctionAgent(name="contract", description="Does what the conformance kits of A2A expect.", function=run)
    versions = ("1.0", "0.3") if options.v03 else ("1.0",)
    settings = A2aSettings(
        streaming=options.streaming,
        versions=versions,
        required_extensions=(REQUIRED,) if options.required_ext else (),
    )
    hooks = ExecutorConfig(
        output="artifact-per-run",
        before_execute=steer,
        after_event=mark_last,
        after_execute=ending_v03 if options.v03 else ending,
        message_reply=None if options.v03 else direct,
    )
    return agent, A2a(
        card=CardConfig(extended=extended if options.extended else False, extended_for_all=True),
        settings=settings,
        executor=hooks,
        push=PushSettings(allow_http=True, allow_private=True, show_secrets_to_anonymous=True)
        if options.push
        else None,
        grpc=options.grpc,
        status_codes=options.codes,
    )


async def direct(call: CallContext, request: a2a.SendMessageRequest) -> a2a.Message | None:
    """An answer without a task."""
    if kind_of(request.message.message_id) != "tck-message-response":
        return None
    return a2a.Message(parts=[a2a.Part(text="Direct message response")])


async def steer(execution: Execution) -> None:
    """Tell the agent the id of the message."""
    if kind_of(execution.message.message_id) == "tck-reject-task":
        raise TaskRejected("rejected")
    config = execution.run.config
    metadata = {**config.metadata, "message_id": execution.message.message_id}
    execution.run = structs.replace(execution.run, config=structs.replace(config, metadata=metadata))


async def mark_last(
    execution: Execution, event: Event, update: a2a.TaskArtifactUpdateEvent
) -> a2a.TaskArtifactUpdateEvent:
    """The second chunk is the last one."""
    return structs.replace(update, last_chunk=True) if update.append else update


async def ending(execution: Execution, status: NewStatus, error: Exception | None) -> NewStatus | None:
    """The state in which a message leaves its task."""
    kind = kind_of(execution.message.message_id)
    if error is not None or kind in ARTIFACTS or kind == RESUBSCRIBE:
        return None
    if kind == "tck-input-required":
        return said(execution, a2a.TaskState.INPUT_REQUIRED, "What else?")
    return said(execution, a2a.TaskState.COMPLETED, MESSAGES.get(kind) or f"echo: {execution.message.text}")


async def ending_v03(execution: Execution, status: NewStatus, error: Exception | None) -> NewStatus | None:
    """For the kit of 0.3 no task ever ends by itself."""
    return None if error is not None else said(execution, a2a.TaskState.INPUT_REQUIRED, "Hello world!")


def said(execution: Execution, state: a2a.TaskState, text: str) -> NewStatus:
    message = a2a.Message(
        message_id=f"{execution.message.message_id}-reply",
        context_id=execution.context_id,
        task_id=execution.task_id,
        role=a2a.Role.AGENT,
        parts=[a2a.Part(text=text)],
    )
    return NewStatus(state=state, message=message)


async def extended(call: CallContext, card: AgentCard) -> AgentCard:
    return structs.replace(card, description=f"{card.description} Extended.")
