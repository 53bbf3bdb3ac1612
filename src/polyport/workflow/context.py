"""NodeContext: what a function gets that is a node of a workflow, if it asks for it.

A parameter annotated `NodeContext`, or named `ctx`. It reads what every context reads, writes state and artifacts, which come
true with the node's result, and may emit events, ask a human, and run other nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import structs

from polyport.data.asking import input_question
from polyport.data.content import Content
from polyport.data.event import Event, RequestInput
from polyport.data.model import Schema
from polyport.ports.agent import CallbackContext, RunContext


class Work(Protocol):
    """One run of a node, as its context sees it."""

    path: str
    name: str
    attempt: int
    input: Any
    answers: Mapping[str, Any]

    async def emit(self, event: Event) -> Event: ...

    async def ask(self, wanted: RequestInput) -> None: ...

    async def run_node(self, target: Any, input: Any, **options: Any) -> Any: ...

    async def run_all(self, calls: Sequence[tuple[Any, Any]], limit: int) -> list[Any]: ...


class NodeContext(CallbackContext):
    """See the module. Of no use once the node has returned."""

    __slots__ = ("_work",)

    def __init__(self, ctx: RunContext, work: Work) -> None:
        super().__init__(ctx)
        self._work = work

    @property
    def node_name(self) -> str:
        return self._work.name

    @property
    def path(self) -> str:
        """Where the node stands: `workflow@1/node@1`."""
        return self._work.path

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._work.attempt

    @property
    def input(self) -> Any:
        """The node's input as plain data."""
        return self._work.input

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers to what this node has asked, by interrupt id, in the order of the questions."""
        return self._work.answers

    @property
    def answer(self) -> Any:
        """The latest of `answers`; None when there is none."""
        return next(reversed(list(self.answers.values())), None)

    def event(self, **fields: Any) -> Event:
        """An event of this node, for `emit` or to be returned: `ctx.event(output=..., routes=[...])`."""
        return Event(**fields)

    async def emit(self, event: Event | Content) -> Event:
        """Say something before the node is done; the event as stored. At most one event of a node may have an `output`, and one
        may have `routes`."""
        return await self._work.emit(event if isinstance(event, Event) else Event(content=event))

    async def request_input(
        self, message: str, response_schema: Schema | None = None, payload: Any = None, interrupt_id: str = ""
    ) -> None:
        """Ask a human, then return: the node waits, other branches go on. The answer becomes the node's output, or with
        `rerun_on_resume=True` the function is called again, with `answers`. BadRequest for what has no JSON form."""
        asked = input_question(message, response_schema, payload)
        await self._work.ask(
            RequestInput(
                interrupt_id=interrupt_id,
                message=asked.message,
                response_schema=asked.response_schema,
                payload=asked.payload,
            )
        )

    async def run_node(
        self,
        target: Any,
        input: Any = None,
        *,
        run_id: str = "",
        branch: str | None = None,
        sub_branch: bool = False,
        use_as_output: bool = False,
        raise_on_wait: bool = False,
    ) -> Any:
        """Run another node inside this one and wait for its output: a function, node, tool or agent. Agents and tools must be
        named in `node(..., uses=[...])`.

        A child that is done is not run again when the run goes on; so the same calls must be made in the same order, or with a
        `run_id` of their own (spec core 4.8). `sub_branch` keeps its events out of the sight of other children. With
        `use_as_output` the child's output is that of this node. A child that waits for a human parks this node: do not catch
        `NodeWaits`. With `raise_on_wait` so does an open long-running call. AgentError when the child fails.
        """
        options = {"run_id": run_id, "branch": branch, "sub_branch": sub_branch}
        return await self._work.run_node(
            target, input, **options, use_as_output=use_as_output, raise_on_wait=raise_on_wait
        )

    async def run_all(self, calls: Sequence[tuple[Any, Any]], limit: int = 0) -> list[Any]:
        """Run several nodes side by side, `limit` at a time (0: all at once): `[(target, input), ...]`. Their outputs, in that
        order. When one waits for a human the others end first; when one fails they stop. Each has a branch of its own."""
        return await self._work.run_all(calls, limit)


class NodeWaits(BaseException):
    """Ends the work of a node whose child waits for somebody outside; the node is called again when the answer has come. No
    Exception, so that `except Exception` in a node lets it pass."""


def route(*routes: str | int | bool, output: Any = None) -> Event:
    """What a node returns to say where to go on: `return route("yes", output=draft)`."""
    from_text = [("true" if r else "false") if isinstance(r, bool) else str(r) for r in routes]
    return structs.replace(Event(), routes=from_text, output=output)
