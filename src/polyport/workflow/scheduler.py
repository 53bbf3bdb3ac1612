"""Runs a graph: starts what the board says, side by side, until nothing is left or all that is left waits (spec core 4.4).

Made by `Workflow.run`, once per activation. Opens the task groups of the package: one task per node that works, one per
item of a parallel worker. The journal is written here, and nowhere else.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import anyio
from msgspec import structs

from polyport.data.event import Event, NodeInfo
from polyport.data.run import Ending
from polyport.engine.journal import Record, write
from polyport.errors import AgentError, Conflict
from polyport.ports.agent import Delegation, RunContext
from polyport.workflow.board import Activation, Board
from polyport.workflow.graph import Graph
from polyport.workflow.history import History
from polyport.workflow.nodes import AgentNode


class Outcome(NamedTuple):
    """What a run of a node came to."""

    value: Any = None
    routes: Sequence[str] = ()
    waits: bool = False


WAITING = Outcome(waits=True)


class Execution:
    """One activation of a workflow in one run. `outputs` are the paths for which its output counts; `home` is the isolation
    scope in which it is said."""

    def __init__(self, ctx: RunContext, graph: Graph, history: History, outputs: Sequence[str], home: str) -> None:
        self.ctx = RunContext(
            ctx.scope, ctx.agent, ctx.branch, ctx.isolation_scope
        )  # events of nodes have places of their own
        self.graph = graph
        self.history = history
        self.path = history.path
        self.outputs = [self.path, *outputs]
        self.home = home
        self.active: set[str] = set()
        self.escalated = any(record.escalated for record in history.done.values())
        self.board = Board(graph)
        self._lock = anyio.Lock()
        self._notes = RunContext(ctx.scope, ctx.agent, ctx.branch, history.scope)
        ctx.scope.delegations[history.scope] = Delegation(
            tree=ctx.tree, caller=ctx.isolation_scope, hidden=True, user_content=None
        )

    async def run(self, input: Any, limit: int, start: Callable[[Activation], Awaitable[Outcome]]) -> Ending:
        """Run the graph from where the journal says it is; how it ended. Raises the first error of a node, once all others have
        stopped. `limit` nodes work at once (0: all)."""
        ready = deque(await self._begin(input))
        waits, working = False, 0
        async with _FirstError() as group:

            async def work(activation: Activation) -> None:
                nonlocal waits, working
                outcome = await start(activation)
                working -= 1
                waits |= outcome.waits
                if self.ctx.scope.ended:
                    group.cancel_scope.cancel()
                    return
                go()

            def go() -> None:
                nonlocal working
                while ready and (limit <= 0 or working < limit):
                    working += 1
                    group.start_soon(work, ready.popleft())

            self._next = ready.extend
            go()
        ended = self.ctx.scope.ended
        if not waits and not ended and len(self.board.outputs) > 1:
            names = ", ".join(map(repr, sorted(self.board.outputs)))
            raise AgentError(
                f"workflow {self.graph.name!r} has several results: of {names}; let a Join make one of them"
            )
        end = Record("end", self.history.scope, self.path, waits=waits and not ended, escalated=self.escalated)
        await self._note(end)
        return "ended" if ended else "paused" if waits else "escalated" if self.escalated else "done"

    async def _begin(self, input: Any) -> list[Activation]:
        history = self.history
        if history.start is None:
            history.start = Record("start", history.scope, self.path, input)
            await self._note(history.start)
        ready = self.board.start(history.start.value, self.ctx.branch)
        for record in history.nodes():
            done = next((a for a in ready if self.path_of(a) == record.path), None)
            if done is None:
                raise Conflict(
                    f"workflow {self.graph.name!r} cannot go on: the run has done {record.path!r}, which does not follow from "
                    "its edges as they are now; begin a new run"
                )
            ready.remove(done)
            ready += self.board.complete(done, record.value, record.routes)
            if isinstance(done.node, AgentNode):
                self.ctx.askers.discard(done.node.name)
        return ready

    def path_of(self, activation: Activation) -> str:
        return f"{self.path}/{activation.node.name}@{activation.number}"

    async def done(self, activation: Activation | None, record: Record, event: Event | None) -> None:
        """Note that a node is done: with the event that says its output, or out of sight where that has been said."""
        async with self._lock:  # the board and the journal must see the same order
            if event is None:
                await self._note(record)
            else:
                await self.ctx.emit(structs.replace(event, custom_metadata=self._metadata(record, event)))
            self.history.done[record.path] = record
            if activation is not None:
                self._next(self.board.complete(activation, record.value, record.routes))

    async def _note(self, record: Record) -> None:
        info = NodeInfo(path=record.path)
        await self._notes.emit(self._notes.event(node_info=info, custom_metadata=self._metadata(record, None)))

    def _metadata(self, record: Record, event: Event | None) -> dict[str, Any]:
        scope = self.ctx.scope
        noted = write(scope.secret, scope.session, scope.id, record)
        return {**((event.custom_metadata or {}) if event is not None else {}), **noted}


async def side_by_side(work: Sequence[Callable[[], Awaitable[Any]]], limit: int) -> list[Any]:
    """The results of all, in their order. The first error stops the others."""
    results: list[Any] = [None] * len(work)
    gate = anyio.Semaphore(limit) if limit > 0 else None

    async def one(index: int) -> None:
        if gate is None:
            results[index] = await work[index]()
        else:
            async with gate:
                results[index] = await work[index]()

    async with _FirstError() as group:
        for index in range(len(work)):
            group.start_soon(one, index)
    return results


class _FirstError:
    """A task group that raises the first real error of its tasks as it is, and not in a group."""

    async def __aenter__(self) -> anyio.abc.TaskGroup:
        self._group = anyio.create_task_group()
        return await self._group.__aenter__()

    async def __aexit__(self, *about: Any) -> bool | None:
        try:
            return await self._group.__aexit__(*about)
        except BaseExceptionGroup as group:
            leaves = list(_leaves(group))
            raise next((e for e in leaves if isinstance(e, Exception)), leaves[0]) from None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error
