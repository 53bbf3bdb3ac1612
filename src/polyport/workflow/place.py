"""Where in a workflow an agent works, and what its events say of that (spec core 1.4, 4.4).

`Placed` is the context of an agent that works in a node: like every other, but that its events are stamped. Made by the agent
nodes, read by nested workflows.
"""

from typing import Any

from msgspec import Struct, structs

from polyport.data.event import Event, NodeInfo
from polyport.ports.agent import Agent, RunContext, RunScope


class Place(Struct, frozen=True, kw_only=True):
    """The node in which an agent works, by its path, for the `attempt`-th time. `outputs` are the paths for which its output
    counts. Its last word is said in the isolation scope `home`: that of its own work, or for the last node of a workflow that
    of the conversation."""

    path: str
    agent: str
    attempt: int = 1
    input: Any = None
    outputs: list[str]
    home: str

    def stamp(self, event: Event) -> Event:
        """`event` with its `nodeInfo`. The final text of the agent itself is the node's output, unless it names another one."""
        spoken = (
            event.output is None
            and event.author == self.agent
            and not event.partial
            and not event.long_running_tool_ids
            and not event.error_code
            and event.final
            and bool(event.text.strip())
        )
        counts = spoken or event.output is not None
        info = NodeInfo(path=self.path, message_as_output=spoken, output_for=self.outputs if counts else [])
        scope = self.home if counts else event.isolation_scope
        return structs.replace(event, node_info=info, isolation_scope=scope)


class Placed(RunContext):
    """What an agent's `run` gets in a node of a workflow."""

    __slots__ = ("place",)

    def __init__(
        self, scope: RunScope, agent: Agent, place: Place, branch: str = "", isolation_scope: str = ""
    ) -> None:
        super().__init__(scope, agent, branch, isolation_scope)
        self.place = place

    def complete(self, event: Event) -> Event:
        return self.place.stamp(super().complete(event))

    def at(self, agent: Agent, branch: str | None = None) -> RunContext:
        return Placed(self.scope, agent, self.place, self.branch if branch is None else branch, self.isolation_scope)
