"""RecordReplay: records what models and tools answer in a run, and answers in their place the next time.

For users' tests: `App(agent, plugins=[RecordReplay("tests/weather.jsonl")])` asks the real model once, and never again. Put it
last, so that it is next to the model. Strict: a request that differs from the recorded ones fails, and shows how.
"""

import threading
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, cast

import anyio.to_thread
from msgspec import structs

from polyport import codec
from polyport.data.event import EventActions, new_actions
from polyport.data.model import ModelRequest, ModelResponse
from polyport.engine.contained import Contained
from polyport.engine.hooks import ModelStep
from polyport.engine.tool_calls import merge_actions
from polyport.errors import ConfigError, PolyportError
from polyport.plugins.recording import HEAD, Exchange, Failure, Masks, ReplayMismatch, difference, load
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.ports.plugin import CallNext, Plugin

Mode = Literal["auto", "record", "replay"]

_in_tool: ContextVar["RecordReplay | None"] = ContextVar("_in_tool", default=None)
"""Who records the tool call that is being carried out here. What a tool asks of models by itself is part of its result."""


class RecordReplay(Plugin):
    """`mode` "record" writes the file anew, "replay" reads it, "auto" replays if there is one and records if not.

    Without `tools`, tools are carried out both times. `mask` are regular expressions; what they match in requests is neither
    stored nor compared: dates, or secrets. Request headers are never stored. A streamed answer is replayed in its pieces.
    Artifacts that a tool saved are not saved again.

    Calls side by side are found by what they ask, so their order is free. ConfigError for a file that cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        mode: Mode = "auto",
        *,
        tools: bool = True,
        mask: Sequence[str] = (),
        name: str = "record_replay",
    ) -> None:
        if mode not in ("auto", "record", "replay"):
            raise ConfigError(f"mode of RecordReplay is {mode!r}; it must be 'auto', 'record' or 'replay'")
        self.name = name
        self.path = Path(path)
        self.replays = mode == "replay" or (mode == "auto" and self.path.exists())
        self._masks = Masks(mask)
        self._tools = tools
        self._left = load(self.path) if self.replays else []
        self._lines: list[bytes] = [] if self.replays else [codec.encode(HEAD)]
        self._append = False
        self._writing = threading.Lock()
        self._problems: dict[str, ReplayMismatch] = {}
        """The first mismatch of each run that is alive: a tool's error does not end a run by itself."""
        self._first: ReplayMismatch | None = None

    def check(self) -> None:
        """ReplayMismatch if something was asked that was not recorded, or not all of the recording was asked for."""
        if self._first is not None:
            raise self._first
        if self._left:
            raise ReplayMismatch(
                f"{len(self._left)} recorded exchanges were not asked for; next: {self._left[0].asker}"
            )

    async def around_model(self, ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        if _in_tool.get() is self:
            return await call_next(request)
        step = cast("ModelStep", call_next)
        asked = structs.replace(request, config=structs.replace(request.config, headers={}))
        exchange = Exchange(kind="model", agent=ctx.agent_name, branch=ctx.branch, request=self._masks.plain(asked))
        if not self.replays:
            return await self._record_model(exchange, request, step)
        known = self._known(ctx, exchange)
        if step.on_partial is not None:
            for piece in known.pieces:
                await step.on_partial(codec.convert(piece, ModelResponse))
        if known.error is not None:
            raise known.error.error()
        return codec.convert(known.response, ModelResponse)

    async def around_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], call_next: CallNext) -> Any:
        if not self._tools or _in_tool.get() is self:
            return await call_next(args)
        request = self._masks.plain(args)
        exchange = Exchange(kind="tool", agent=ctx.agent_name, branch=ctx.branch, tool=tool.name, request=request)
        if not self.replays:
            return await self._record_tool(exchange, ctx, args, call_next)
        known = self._known(ctx, exchange)
        if known.actions is not None:
            merge_actions(ctx.actions, codec.convert(known.actions, EventActions))
        if known.error is not None:
            raise known.error.error()
        return known.response

    async def after_run(self, ctx: CallbackContext) -> None:
        self._problems.pop(ctx.invocation_id, None)
        await self._flush()

    async def close(self) -> None:
        await self._flush()

    # ---- recording

    async def _record_model(self, exchange: Exchange, request: ModelRequest, step: ModelStep) -> ModelResponse:
        out = step.on_partial

        async def on_partial(piece: ModelResponse) -> None:
            exchange.pieces.append(codec.json_safe(piece, "a piece of the model's answer"))
            if out is not None:
                await out(piece)

        try:
            response = await step(request, on_partial if out is not None else None)
        except Exception as error:
            exchange.error = Failure.of(error)
            self._lines.append(codec.encode(exchange))
            raise
        exchange.response = codec.json_safe(response, "the model's answer")
        self._lines.append(codec.encode(exchange))
        return response

    async def _record_tool(
        self, exchange: Exchange, ctx: ToolContext, args: dict[str, Any], call_next: CallNext
    ) -> Any:
        result, problem = None, None
        token = _in_tool.set(self)
        try:
            with Contained(f"tool {exchange.tool!r}"):
                result = await call_next(args)
        except Exception as error:  # noqa: BLE001  raised again below, when it is written down
            problem = error
        finally:
            _in_tool.reset(token)
        if ctx.actions != new_actions():
            exchange.actions = codec.json_safe(ctx.actions, "the actions of a tool")
        if problem is not None:
            exchange.error = Failure.of(problem)
        else:
            exchange.response = _result(exchange.tool, result)
        self._lines.append(codec.encode(exchange))
        if problem is not None:
            raise problem
        return result

    async def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            await anyio.to_thread.run_sync(self._write, lines)

    def _write(self, lines: list[bytes]) -> None:
        with self._writing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab" if self._append else "wb") as file:
                file.write(b"\n".join(lines) + b"\n")
            self._append = True

    # ---- replaying

    def _known(self, ctx: CallbackContext, asked: Exchange) -> Exchange:
        """The first recorded exchange that is left and asks the same."""
        if (problem := self._problems.get(ctx.invocation_id)) is not None:
            raise problem
        left = [exchange for exchange in self._left if exchange.like(asked)]
        for exchange in left:
            if exchange.request == asked.request:
                self._left = [e for e in self._left if e is not exchange]
                return exchange
        text = f"{asked.asker} differs from the recording {self.path.name}"
        text += f":\n{difference(left[0].request, asked.request)}" if left else ", which has no more of them"
        problem = ReplayMismatch(f"{text}\nIf the change is meant, record it again.")
        self._problems[ctx.invocation_id] = problem
        self._first = self._first or problem
        raise problem


def _result(tool: str, result: Any) -> Any:
    """A tool's result as plain data, or the error that the model is told in its place."""
    try:
        return codec.json_safe(result, f"the result of tool {tool}")
    except PolyportError as error:
        return {"error": str(error)}
