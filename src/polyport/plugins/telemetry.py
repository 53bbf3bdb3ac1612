"""TelemetryPlugin: spans, metrics and log events of every run, by OpenTelemetry (spec core 10).

Used in `App(plugins=[...])`, by the debug routes and, through `telemetry_from_env`, by the command line. Imported on demand, so
that whoever does without pays nothing. Spans have the names and attributes of the reference, with native types. What users,
models and tools say goes out only when it is asked for. Contexts are put back by value and never detached by token, so that no
task can complain of another one's (FR-225). Configures no exporter and never changes a run.
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import _logs, context, metrics, trace
from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Span, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from polyport.data.content import FunctionCall
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse, Usage
from polyport.data.run import Ending
from polyport.data.session import SessionKey
from polyport.errors import PolyportError
from polyport.plugins.telemetry_events import ELIDED, OTHER_SYSTEM, Messages, as_json
from polyport.ports.agent import CallbackContext, ReadContext, RunContext, Tool, ToolContext
from polyport.ports.plugin import CallNext, Plugin
from polyport.ports.trace import INCOMING, OUTGOING
from polyport.version import VERSION

SCOPE = "gcp.vertex.agent"
"""The name of the tracer, the meter and the logger."""
SCHEMA = "https://opentelemetry.io/schemas/1.36.0"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

EVENT_ID = "gcp.vertex.agent.event_id"
INVOCATION_ID = "gcp.vertex.agent.invocation_id"
CONVERSATION_ID = "gen_ai.conversation.id"
OPERATION = "gen_ai.operation.name"
TOOL_NAME = "gen_ai.tool.name"

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_SYSTEMS = {"gemini": "gcp.gemini", "gpt": "openai", "claude": "anthropic"}
"""How the names of models begin -> `gen_ai.system`."""
_NAME_CHARS = 100
"""How much of a name is used that a model made up."""

_OWNER = context.create_key("polyport-owner")
_STEP = context.create_key("polyport-step")
_TRACE_CONTEXT = TraceContextTextMapPropagator()


class _Ended(NamedTuple):
    """The span of a tool call that is over, and when (epoch nanoseconds). It is ended once the id of the event with its
    response is known."""

    span: Span
    call_id: str
    at: int


def owner_of(found: Context | None) -> SessionKey | None:
    """The session of the run in whose trace context this is."""
    owner = context.get_value(_OWNER, found)
    return owner if isinstance(owner, SessionKey) else None


class TelemetryPlugin(Plugin):
    """Uses the global providers, whenever they are set, or those that are given. Without an SDK it does nothing that shows.

    `capture_content` lets what users, models and tools say go into spans and log events; by default as the environment's
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says (`true` or `1`).
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        capture_content: bool | None = None,
        name: str = "telemetry",
    ) -> None:
        self.name = name
        asked = os.environ.get(CAPTURE, "").strip().lower() in ("true", "1")
        self.capture_content = asked if capture_content is None else capture_content
        meter = metrics.get_meter(SCOPE, VERSION, meter_provider, SCHEMA)
        self._duration: Histogram = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "How long a question to a model took",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens: Histogram = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a question to a model and of its answer",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.tracer_provider = tracer_provider
        self.logger_provider = logger_provider
        self.use(tracer_provider, logger_provider)

    def use(self, tracer_provider: TracerProvider | None, logger_provider: LoggerProvider | None) -> None:
        """Take these providers from now on; None is the global one."""
        self.tracer_provider = tracer_provider
        self.logger_provider = logger_provider
        self._tracer: Tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider, SCHEMA)
        logger = _logs.get_logger(SCOPE, VERSION, logger_provider, SCHEMA)
        self._messages = Messages(logger, self.capture_content)

    # ---- spans

    async def watch_agent(self, ctx: RunContext, call_next: CallNext) -> Any:
        agent = ctx.agent
        OUTGOING.set(_headers)
        around = context.get_current()
        if owner_of(around) != ctx.session.key:
            around = context.set_value(_OWNER, ctx.session.key, _from_outside(around))
        attributes = {CONVERSATION_ID: ctx.session.key.id}
        if hasattr(type(agent), "graph"):
            operation = "invoke_workflow"
            attributes |= {"gen_ai.workflow.name": agent.name}
        else:
            operation = "invoke_agent"
            attributes |= {"gen_ai.agent.name": agent.name, "gen_ai.agent.description": agent.description}
            attributes |= {INVOCATION_ID: ctx.invocation_id}
        with self._span(f"{operation} {agent.name}", {OPERATION: operation, **attributes}, around):
            return await call_next()

    async def watch_node(self, ctx: RunContext, path: str, call_next: CallNext) -> Ending:
        name = path.rpartition("/")[2].partition("@")[0]
        if any(agent.name == name for agent in ctx.agent.sub_agents):
            return await call_next()  # an agent's node has the span of its agent
        attributes = {OPERATION: "invoke_node", "gen_ai.node.name": name, CONVERSATION_ID: ctx.session.key.id}
        with self._span(f"invoke_node {name}", attributes):
            return await call_next()

    async def watch_model(
        self, ctx: CallbackContext, event_id: str, request: ModelRequest, call_next: CallNext
    ) -> ModelResponse:
        attributes = {
            OPERATION: "generate_content",
            "gen_ai.request.model": request.model,
            INVOCATION_ID: ctx.invocation_id,
            EVENT_ID: event_id,
        }
        about = {
            OPERATION: "generate_content",
            "gen_ai.request.model": request.model,
            "gen_ai.system": system_of(request),
        }
        began = ctx.scope.seams.clock()
        try:
            with self._span(f"generate_content {request.model}", attributes) as span:
                self._messages.asked(request, about["gen_ai.system"])
                response: ModelResponse = await call_next(request)
                if span.is_recording():
                    span.set_attributes(_of_answer(response))
                    if response.error_code:
                        _failed(span, response.error_code, response.error_code)
                self._messages.answered(response, about["gen_ai.system"])
        except Exception as error:
            self._measure(ctx, began, {**about, "error.type": _kind(error)})
            raise
        if response.model_version:
            about["gen_ai.response.model"] = response.model_version
        self._count(response.usage_metadata, about)
        self._measure(ctx, began, {**about, "error.type": response.error_code} if response.error_code else about)
        return response

    async def watch_tools(self, ctx: RunContext, calls: Sequence[FunctionCall], call_next: CallNext) -> Any:
        step: list[_Ended] = []
        around = context.set_value(_STEP, step, context.get_current())
        event: Event | None = None
        try:
            if len(calls) == 1:
                with _current(around):
                    done = await call_next()
                event = done.event
                return done
            attributes = {OPERATION: "execute_tool", TOOL_NAME: "(merged tools)"}
            with self._span("execute_tool (merged)", attributes, around) as span:
                try:
                    done = await call_next()
                    event = done.event
                    self._tell_merged(span, event)
                finally:
                    _end(step, event)
            return done
        finally:
            _end(step, event)

    def _tell_merged(self, span: Span, event: Event | None) -> None:
        if event is None or not span.is_recording():
            return
        span.set_attribute(EVENT_ID, event.id)
        shown = as_json([r.response for r in event.responses]) if self.capture_content else ELIDED
        span.set_attribute("gcp.vertex.agent.tool_response", shown)

    async def watch_tool(self, ctx: ToolContext, call: FunctionCall, tool: Tool | None, call_next: CallNext) -> Any:
        name = call.name[:_NAME_CHARS]
        attributes = {
            OPERATION: "execute_tool",
            TOOL_NAME: name,
            "gen_ai.tool.description": tool.description if tool is not None else "",
            "gen_ai.tool.call.id": call.id,
            "gcp.vertex.agent.tool_call_args": as_json(call.args) if self.capture_content else ELIDED,
        }
        around = context.get_current()
        span = self._tracer.start_span(f"execute_tool {name}", around, attributes=attributes)
        try:
            with _current(trace.set_span_in_context(span, around)):
                made = await call_next()
            self._tell_response(span, made.response)
            return made
        finally:
            step = context.get_value(_STEP, around)
            ended = _Ended(span, call.id, time.time_ns())  # the clock of the SDK's other times
            if isinstance(step, list):
                step.append(ended)  # pyright: ignore[reportUnknownMemberType]
            else:
                span.end(ended.at)

    def _tell_response(self, span: Span, response: Mapping[str, Any] | None) -> None:
        if response is None or not span.is_recording():
            return
        span.set_attribute("gcp.vertex.agent.tool_response", as_json(response) if self.capture_content else ELIDED)
        if "error" in response:
            _failed(span, "tool_error", str(response["error"]) if self.capture_content else "")

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, Any], around: Context | None = None) -> Generator[Span]:
        """A span that is current inside the block. An error marks it; a pause and a cancellation do not."""
        around = context.get_current() if around is None else around
        span = self._tracer.start_span(name, around, attributes=attributes)
        try:
            with _current(trace.set_span_in_context(span, around)):
                yield span
        except Exception as error:
            _failed(span, _kind(error), str(error) if isinstance(error, PolyportError) else "")
            raise
        finally:
            span.end()

    # ---- metrics

    def _measure(self, ctx: ReadContext, began: float, about: Mapping[str, str]) -> None:
        self._duration.record(max(0.0, ctx.scope.seams.clock() - began), about)

    def _count(self, usage: Usage | None, about: Mapping[str, str]) -> None:
        for kind, tokens in _tokens_of(usage).items():
            self._tokens.record(tokens, {**about, "gen_ai.token.type": kind})


def _from_outside(around: Context) -> Context:
    """The context in which a run begins: what is current already, else what the request said."""
    headers = INCOMING.get()
    if not headers or trace.get_current_span(around).get_span_context().is_valid:
        return around
    return _TRACE_CONTEXT.extract(headers, around)


def _headers() -> dict[str, str]:
    """What a request says of the span that is current."""
    headers: dict[str, str] = {}
    _TRACE_CONTEXT.inject(headers)
    return headers


@contextmanager
def _current(new: Context) -> Generator[None]:
    """Make a context the current one inside the block. What was current before is put back, unless the block is left in another
    task than it was entered, which has a current context of its own."""
    before = context.get_current()
    context.attach(new)
    try:
        yield
    finally:
        if context.get_current() is new:
            context.attach(before)


def _end(step: list[_Ended], event: Event | None) -> None:
    """End the spans of the calls of a step; with the id of the event that has their responses, as far as there is one."""
    answered = {r.id for r in event.responses} if event is not None else set[str]()
    while step:
        span, call_id, at = step.pop(0)
        if event is not None and call_id in answered:
            span.set_attribute(EVENT_ID, event.id)
        span.end(at)


def _failed(span: Span, kind: str, description: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, description)


def _kind(error: Exception) -> str:
    return type(error).__qualname__


def system_of(request: ModelRequest) -> str:
    """Who makes the model, in the words of the semantic conventions."""
    name = request.model.rpartition("/")[2]
    return next((system for start, system in _SYSTEMS.items() if name.startswith(start)), OTHER_SYSTEM)


def _tokens_of(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    taken = (usage.prompt_token_count, usage.tool_use_prompt_token_count)
    said = (usage.candidates_token_count, usage.thoughts_token_count)
    kinds = (("input", taken), ("output", said))
    return {kind: sum(n or 0 for n in counts) for kind, counts in kinds if counts != (None, None)}


def _of_answer(response: ModelResponse) -> dict[str, Any]:
    """The attributes that an answer gives its span. What is not known is left out."""
    usage = response.usage_metadata
    tokens = _tokens_of(usage)
    found = {
        "gen_ai.response.finish_reasons": [response.finish_reason],
        "gen_ai.usage.input_tokens": tokens.get("input"),
        "gen_ai.usage.output_tokens": tokens.get("output"),
        "gen_ai.usage.cache_read.input_tokens": usage.cached_content_token_count if usage is not None else None,
        "gen_ai.usage.reasoning.output_tokens": usage.thoughts_token_count if usage is not None else None,
    }
    return {name: value for name, value in found.items() if value is not None}
