"""One run of one node: its input, its attempts, its events, its children and its result (spec core 4.3 to 4.8).

Made by the workflow for each activation, and by a node for each child. What a node may do is here; when it runs is the
scheduler's.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio
from msgspec import UNSET, structs

from polyport.data.asking import Question, input_call
from polyport.data.content import Content, Part, model_text
from polyport.data.event import Event, NodeInfo, RequestInput
from polyport.data.run import Ending
from polyport.engine.hooks import wrap
from polyport.engine.journal import Record
from polyport.engine.pairing import json_text
from polyport.engine.tool_calls import merge_actions
from polyport.errors import AgentError, PolyportError, Superseded, TimedOut
from polyport.ports.agent import Agent, RunContext
from polyport.workflow.context import NodeContext, NodeWaits
from polyport.workflow.nodes import AgentNode, Came, FunctionNode, Join, Node, ParallelWorker, as_node
from polyport.workflow.retry import RetryPolicy
from polyport.workflow.scheduler import WAITING, Execution, Outcome, side_by_side
from polyport.workflow.turn import Setting, run_turn, stands
from polyport.workflow.values import convert, from_text, plain, route_text

log = logging.getLogger("polyport.workflow")


class Work:
    """See the module. `perform` is called once."""

    def __init__(self, execution: Execution, node: Node, input: Any, at: Setting) -> None:
        self.execution = execution
        self.node = node
        self.name = node.name
        self.path = at.path
        self.input = input
        self.at = at
        self.ctx = RunContext(execution.ctx.scope, execution.ctx.agent, at.branch, execution.ctx.isolation_scope)
        self.attempt = 0
        self._begin()

    def _begin(self) -> None:
        """Forget what an attempt before has left."""
        self.context = NodeContext(self.ctx, self)
        self.routes: list[str] = []
        self._produced: list[Any] = []
        self._asks = False
        self._parked = False
        self._heir: Outcome | None = None
        self._counts: dict[str, int] = {}

    # -- the run as a whole

    async def perform(self) -> Outcome:
        """Run the node, unless the journal says what it came to, or that it still waits. Raises its last error."""
        execution = self.execution
        known = execution.history.done.get(self.path)
        if known is not None:
            return Outcome(known.value, known.routes)
        if self.path in execution.active:
            raise AgentError(f"node {self.path!r} is running already; give each run a run_id of its own")
        execution.active.add(self.path)
        try:
            self.answers: Mapping[str, Any] = {}
            asked = execution.history.asked(self.path) if execution.history.begun(self.path) else {}
            self.answers = {id: value for id, value in asked.items() if value is not UNSET}
            self._open = {id for id, value in asked.items() if value is UNSET}
            if self._still_waits(asked):
                return WAITING
            if asked and not self.node.reruns:
                said = len(self.at.outputs) == 1  # by the human; what a whole workflow came to is said by the workflow
                return await self._finish(Came(self._handed_over(), said))
            self._checked_input()
            return await self._watched()
        finally:
            execution.active.discard(self.path)

    def _still_waits(self, asked: Mapping[str, Any]) -> bool:
        node = self.node
        if asked:
            return bool(self._open) and not (node.reruns and self.answers)
        if not isinstance(node, AgentNode) or not self.execution.history.begun(self.path):
            return False
        found = stands(self.execution, self.at, self.input, node.agent)
        self.at.said = found if isinstance(found, Event) else None
        return found == "waits"

    def _handed_over(self) -> Any:
        """What a node came to that does not run again: the answer, or all of them by their ids."""
        if len(self.answers) == 1:
            return next(iter(self.answers.values()))
        return dict(self.answers)

    def _checked_input(self) -> None:
        """Outside of the attempts, for an input that does not fit will not fit the next time."""
        kind, where = self.node.input_schema, f"the input of node {self.name!r}"
        if kind is None and isinstance(self.node, Join):
            kind = self.node.output_schema  # its output is its input
        if kind is None:
            return
        if isinstance(self.node, Join):
            self.input = {n: plain(convert(v, kind, f"{where} from {n!r}"), where) for n, v in self.input.items()}
        else:
            self.input = plain(convert(self.input, kind, where), where)

    async def _watched(self) -> Outcome:
        """The attempts, within the `watch_node` hooks, which may measure them."""
        found: list[Outcome] = []

        async def inner() -> Ending:
            found.append(await self._attempts())
            return "paused" if found[0].waits else "done"

        await wrap(self.ctx.scope.hooks, "watch_node", inner, self.ctx, self.path)()
        return found[0]

    async def _attempts(self) -> Outcome:
        while True:
            self.attempt += 1
            self._begin()
            try:
                came = await self._try()
                break
            except Superseded:
                raise
            except Exception as error:
                retry = self.at.retry or (self.node.retry if not isinstance(self.node, ParallelWorker) else None)
                if retry is None or not retry.again(self.attempt, error):
                    error.add_note(f"in node {self.path!r}")
                    raise
                log.info("node %s failed and is tried again: %s", self.path, error)
                await anyio.sleep(retry.wait_s(self.attempt, self.ctx.scope.seams.chance()))
        if came is None:
            if self.context.changed:
                await self.ctx.emit(self._event(Event(actions=self.context.actions)))
            return WAITING
        return await self._finish(came)

    async def _try(self) -> Came | None:
        """One attempt; None when it waits."""
        limit = self.node.timeout_s
        try:
            with anyio.move_on_after(limit) if limit is not None else nullcontext() as timer:
                came = await self.node.work(self)
                return None if self._asks or self._parked else self._read(came)
        except NodeWaits:
            return None
        assert timer is not None
        raise TimedOut(f"node {self.name!r} took longer than {limit:g} s")

    def _read(self, came: Came) -> Came:
        """The result as an event or plain data, checked against the node's schema."""
        value, where = came.value, f"the output of node {self.name!r}"
        if isinstance(value, Event):
            output: Any = value.output
            if value.routes:
                self._take_routes(value)
        elif isinstance(value, Content):
            output = value.text
        else:
            output = value
        if output is None:
            return came
        kind = self.node.output_schema
        if kind is not None and not isinstance(self.node, Join):
            read = from_text if isinstance(output, str) and not isinstance(self.node, FunctionNode) else convert
            output = read(output, kind, where)
        output = plain(output, where)
        if not came.said:
            self._produce(output)
        if isinstance(value, Event):
            return Came(structs.replace(value, output=output))
        return came if isinstance(value, Content) and kind is None else Came(output, came.said)

    async def _finish(self, came: Came) -> Outcome:
        """Make the result true: the event that says it, with the journal's record."""
        value = came.value
        event: Event | None = None
        if isinstance(value, Event):
            event, output = value, value.output
        elif isinstance(value, Content):
            event, output = Event(content=value), value.text
        else:
            output = value
            if output is not None and not came.said:
                event = Event(output=output)
        if output is None and self._produced:
            output = list(self._produced) if len(self._produced) > 1 else self._produced[0]
        if self._heir is not None:
            if output is not None:
                raise AgentError(f"node {self.name!r} has an output of its own, and that of a child (use_as_output)")
            output = self._heir.value
        if self.context.changed or self.context.actions.escalate or self.context.actions.end_invocation:
            event = self._with_actions(event or Event())
        if event is not None:
            self.execution.escalated |= event.actions.escalate
            event = self._event(event, said=isinstance(value, Content))
        execution = self.execution
        record = Record(
            "done", execution.history.scope, self.path, output, tuple(self.routes), escalated=execution.escalated
        )
        await self.execution.done(self.at.activation, record, event)
        return Outcome(output, record.routes)

    def _with_actions(self, event: Event) -> Event:
        actions = structs.replace(self.context.actions)
        merge_actions(actions, event.actions)
        return structs.replace(event, actions=actions)

    # -- events

    def _event(self, event: Event, *, said: bool = False) -> Event:
        """An event of this node, complete. What a whole workflow came to is also said as text."""
        at = self.at
        counts = said or event.output is not None
        content = event.content
        if content is None and event.output is not None and (len(at.outputs) > 1 or at.home is not None):
            content = model_text(event.output if isinstance(event.output, str) else json_text(event.output))
        if content is not None and not content.role:
            content = structs.replace(content, role="user" if content.responses else "model")
        info = NodeInfo(path=self.path, message_as_output=said, output_for=at.outputs if counts else [])
        scope = at.home if at.home is not None and counts else self.ctx.isolation_scope
        branch = event.branch or at.branch
        return self.ctx.complete(
            structs.replace(
                event,
                author=event.author or self.ctx.agent.name,
                content=content,
                node_info=info,
                branch=branch,
                isolation_scope=scope,
            )
        )

    def _take_routes(self, event: Event) -> None:
        if self.routes:
            raise AgentError(f"node {self.name!r} has given routes twice: {self.routes} and {event.routes}")
        self.routes = [route_text(r) for r in event.routes]

    def _produce(self, output: Any) -> None:
        self._produced.append(output)
        if len(self._produced) > 1 and not self.at.many:
            raise AgentError(f"node {self.name!r} has more than one output; say other things as content")

    async def emit(self, event: Event) -> Event:
        """An event before the node is done. AgentError for a second output, or second routes."""
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
            raise AgentError(f"node {self.name!r} emitted a {type(event).__name__}, not an Event")
        if event.partial:
            return await self.ctx.emit(self._event(event))
        if event.routes:
            self._take_routes(event)
        if event.output is not None:
            event = structs.replace(event, output=plain(event.output, f"the output of node {self.name!r}"))
            self._produce(event.output)
        self.execution.escalated |= event.actions.escalate
        return await self.ctx.emit(self._event(event))

    async def take(self, value: Any) -> None:
        """An item of a generator: an event or content to be shown, a question, or the output."""
        if value is None:
            return
        if isinstance(value, RequestInput):
            await self.ask(value)
        elif isinstance(value, Content):
            await self.emit(Event(content=value))
        elif isinstance(value, Event):
            await self.emit(value)
        else:
            output = plain(value, f"the output of node {self.name!r}")
            await self.emit(Event(output=output, content=model_text(output) if isinstance(output, str) else None))

    async def ask(self, wanted: RequestInput) -> None:
        """Ask a human. What is asked already, and not answered, is not asked again."""
        self._asks = True
        id = wanted.interrupt_id or "adk-" + self.ctx.scope.seams.new_id()
        if id in self._open:
            return
        self._open.add(id)
        call, made = input_call(
            id, Question(message=wanted.message, response_schema=wanted.response_schema, payload=wanted.payload)
        )
        content = Content(role="model", parts=[Part(function_call=call)])
        event = Event(content=content, requested_input=made, long_running_tool_ids=[id])
        await self.ctx.emit(self._event(event))

    async def run_agent(self, agent: Agent) -> Any:
        """See workflow/turn."""
        return await run_turn(self.execution, self.at, self.input, agent, self.attempt)

    # -- children

    async def run_each(self, node: Node, items: Sequence[Any], limit: int, retry: RetryPolicy | None) -> list[Any]:
        """See nodes.Running. NodeWaits, once all others are done, when one of them waits."""
        works: list[Work] = []
        for number, item in enumerate(items, 1):
            work = self._child(node, item, str(number), self._sub_branch(node, str(number)))
            work.at.many, work.at.retry = True, retry
            works.append(work)
        outcomes: list[Outcome] = await side_by_side([w.perform for w in works], limit)
        if any(o.waits for o in outcomes):
            raise NodeWaits
        return [o.value for o in outcomes]

    async def run_all(self, calls: Sequence[tuple[Any, Any]], limit: int) -> list[Any]:
        """See NodeContext.run_all."""
        works: list[Work] = []
        for target, input in calls:
            node = self._target(target)
            run_id = self._next_id(node)
            works.append(self._child(node, input, run_id, self._sub_branch(node, run_id)))
        outcomes = await side_by_side([partial(self._run_child, w) for w in works], limit)
        if self._parked:
            raise NodeWaits
        return outcomes

    async def run_node(
        self, target: Any, input: Any, *, run_id: str, branch: str | None, sub_branch: bool, **how: bool
    ) -> Any:
        """See NodeContext.run_node."""
        node = self._target(target)
        heir = how["use_as_output"]
        if heir and self._heir is not None:
            raise AgentError(f"node {self.name!r} takes its output from two children; only one can have use_as_output")
        if not run_id:
            run_id = self._next_id(node)
        elif run_id.isdecimal() or set(run_id) & set("/@#|"):
            raise AgentError(f"run_id {run_id!r} must not be a number, nor have one of / @ # | in it")
        base = self.at.branch if branch is None else branch
        work = self._child(node, input, run_id, self._sub_branch(node, run_id, base) if sub_branch else base, heir=heir)
        work.at.lenient = not how["raise_on_wait"]
        if heir:
            self._heir = WAITING
        value = await self._run_child(work)
        if self._parked:
            raise NodeWaits
        if heir:
            self._heir = Outcome(value)
        return value

    def _next_id(self, node: Node) -> str:
        self._counts[node.name] = self._counts.get(node.name, 0) + 1
        return str(self._counts[node.name])

    def _sub_branch(self, node: Node, run_id: str, base: str | None = None) -> str:
        base = self.at.branch if base is None else base
        own = f"{node.name}@{run_id.replace('.', '_')}"  # a dot would begin a branch of its own
        return f"{base}.{own}" if base else own

    def _child(self, node: Node, input: Any, run_id: str, branch: str, *, heir: bool = False) -> "Work":
        """A run of another node inside this one."""
        path = f"{self.path}/{node.name}@{run_id}"
        at = Setting(path, branch, self.at.outputs if heir else (), self.at.home if heir else None)
        return Work(self.execution, node, plain(input, f"the input of node {node.name!r}"), at)

    async def _run_child(self, work: "Work") -> Any:
        """The output of a child. AgentError when it fails; this node is parked when it waits."""
        try:
            outcome = await work.perform()
        except Exception as error:
            said = str(error) if isinstance(error, PolyportError) else type(error).__name__
            raise AgentError(f"child {work.name!r} ({work.path}) failed: {said}") from error
        if outcome.waits or (work.node.wait_for_output and outcome.value is None):
            self._parked = True
            return None
        return outcome.value

    def _target(self, target: Any) -> Node:
        known = self.node.used.get(id(target)) if isinstance(self.node, FunctionNode) else None
        node = known or as_node(target)
        for agent in node.agents:
            if self.execution.ctx.tree.find(agent.name) is not agent:
                raise AgentError(
                    f"node {self.name!r} runs {agent.name!r}, which it does not name: node(..., uses=[{agent.name}])"
                )
        return node
