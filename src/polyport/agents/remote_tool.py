"""RemoteAgentTool: a remote A2A agent as a tool (seed 004).

For users, in `tools=[RemoteAgentTool("prime", "https://host/agent", "Checks primes.")]`. The call runs inside the caller's run,
as that of an AgentTool does: its questions reach the user, and it is cancelled with the run.
"""

from typing import Any

from polyport.agents.remote import RemoteAgent
from polyport.data.content import Content, user_text
from polyport.data.run import Ending
from polyport.engine.delegation import REQUEST, Delegate, answer_of, check_arguments
from polyport.ports.agent import RunContext, ToolContext


class RemoteAgentTool(Delegate):
    """The model calls it with one text, `request`; the result is `{"result": text}`. `endpoint` is the agent's base URL or that
    of its card. `more` are fields of RemoteAgent, such as `headers`."""

    def __init__(self, name: str, endpoint: str, description: str = "", **more: Any) -> None:
        super().__init__(RemoteAgent(name=name, url=endpoint, description=description, **more), REQUEST)

    def asked(self, ctx: ToolContext, args: dict[str, Any]) -> Content:
        check_arguments(self.name, args, None)
        return user_text(str(args["request"]))

    def hides(self, hidden: bool) -> bool:
        return True

    def result(self, run: RunContext, ending: Ending) -> Any:
        if ending == "paused":
            return None
        return {"result": answer_of(run.session.events, run.isolation_scope, run.tree) or ""}
