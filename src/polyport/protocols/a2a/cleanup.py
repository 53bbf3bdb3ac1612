"""Agents that have started tasks elsewhere: what they are told when a task is canceled that waits for one of those (T099).

Used by the executor. Calls nobody itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from polyport.data.session import Session
from polyport.ports.agent import Agent


@runtime_checkable
class CancelsRemoteTasks(Protocol):
    """An agent that has started tasks elsewhere, and can cancel those that wait (T099)."""

    async def cancel_remote(self, session: Session, call_ids: Sequence[str]) -> None:
        """Cancel the remote tasks that asked these long-running calls of the session."""
        ...


def below(agent: Agent | None) -> Iterator[CancelsRemoteTasks]:
    """The agents of a tree, and those inside their tools, that can cancel remote tasks."""
    if agent is None:
        return
    if isinstance(agent, CancelsRemoteTasks):
        yield agent
    tools: Sequence[Any] = getattr(agent, "tools", ())
    inner = [found for tool in tools if isinstance(found := getattr(tool, "agent", None), Agent)]
    for one in (*agent.sub_agents, *inner):
        yield from below(one)
