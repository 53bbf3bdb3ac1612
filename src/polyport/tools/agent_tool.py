"""AgentTool: an agent as a tool of another one (spec core 6.3).

For users, in `tools=[AgentTool(agent)]`. The agent works inside the caller's run (see engine/delegation): its events are
stored, its state and artifacts are the session's, its model calls count, and it may ask a human. It hands over among its own
sub-agents only.
"""

from typing import Any, cast

from polyport.data.content import Content, user_text
from polyport.data.run import Ending
from polyport.engine.delegation import REQUEST, Delegate, answer_of, check_arguments
from polyport.engine.pairing import json_text
from polyport.engine.spec import LlmSpec
from polyport.errors import ConfigError
from polyport.ports.agent import Agent, OutputSchema, RunContext, ToolContext
from polyport.tools.schema import output_schema, schema_of


def accepted_input(agent: Agent, spec: Any) -> OutputSchema:
    """The arguments of calls to an agent, from its `input_schema`. ConfigError unless they are an object."""
    schema, parse = output_schema(spec)
    given = cast("dict[str, Any]", spec) if isinstance(spec, dict) else schema_of(spec)
    if given.get("type", "object") != "object":
        raise ConfigError(
            f"the input_schema of agent {agent.name!r} must be that of an object, not of {given['type']!r}"
        )
    return OutputSchema(schema, parse)


class AgentTool(Delegate):
    """`AgentTool(agent)`: the model calls it by the agent's name, with the agent's `input_schema` or one text `request`.

    The result is `{"result": text}` of the agent's last answer, or the object that its `output_schema` describes. With
    `skip_summarization` the caller's turn ends with the result. `show_events` lets those who watch the run see what the agent
    does, also as it streams; otherwise they see only its questions to a human.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        description: str = "",
        input_schema: Any = None,
        skip_summarization: bool = False,
        show_events: bool = False,
    ) -> None:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
            raise ConfigError(f"AgentTool needs an agent, not a {type(agent).__name__}")
        if isinstance(agent, LlmSpec) and agent.mode == "task":
            raise ConfigError(
                f"agent {agent.name!r} is in task mode: put it into sub_agents of its caller, not into an AgentTool"
            )
        spec = input_schema if input_schema is not None else agent.input_schema if isinstance(agent, LlmSpec) else None
        self._accepts = accepted_input(agent, spec) if spec is not None else None
        super().__init__(agent, self._accepts.schema if self._accepts is not None else REQUEST, description)
        self._skip_summarization = skip_summarization
        self._show_events = show_events

    def asked(self, ctx: ToolContext, args: dict[str, Any]) -> Content:
        check_arguments(self.name, args, self._accepts)
        request = args if self._accepts is not None else args["request"]
        return user_text(request if isinstance(request, str) else json_text(request))

    def hides(self, hidden: bool) -> bool:
        return hidden or not self._show_events

    def result(self, run: RunContext, ending: Ending) -> Any:
        if ending == "paused":
            return None
        found = answer_of(run.session.events, run.isolation_scope, run.tree)
        if found is None:
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {"result": found}

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        result = await super().call(ctx, args)
        if not ctx.waits:
            ctx.actions.skip_summarization |= self._skip_summarization
        return result
