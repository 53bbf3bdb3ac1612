"""The demo model: a few rules in the place of a language model, so that everything around it can be tried offline.

It understands nothing. It matches words of the user's text with the names and descriptions of tools and agents, fills
arguments from capitals and numbers, and says a result back as a sentence. No key, no network, no chance: the same request
gives the same answer. It really goes through tool calls, transfer, typed answers and streaming. Made by the registry.
"""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from msgspec import Struct, structs

from polyport.codec import encode
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.live import LiveConfig
from polyport.data.model import ModelRequest, ModelResponse, Schema, ToolDeclaration, Usage
from polyport.models.demo_live import DemoConnection
from polyport.models.demo_values import SMALL_WORDS, Filler, Unfillable, mentioned, read_hints, types_of
from polyport.ports.model import OnPartial
from polyport.seams import REAL, Seams

TRANSFER = "transfer_to_agent"
RESULT_TOOLS = ("set_model_response", "finish_task")
MAX_CALLS = 8
"""How many calls one answer has at most."""

_GREETING = re.compile(r"\W*(?:hello|hi|hey|good (?:morning|afternoon|evening))\b", re.IGNORECASE)
_CONTEXT = re.compile(r"^\[[\w-]+\] \w+")
"""How the engine tells what other agents did, in contents of the role user."""
_NOTE = re.compile(r"A result of `|The tool `|Please go on from here")
"""How the engine's own words to a model begin."""
_WORD = re.compile(r"[^\W_]+")
_DULL = SMALL_WORDS | {"agent", "tool", "call", "return", "given", "current", "user", "name", "value", "string", "text"}


class DemoModel:
    """See the module; for the methods `ports.model.Model`. `delay_s` is the pause after each streamed word."""

    def __init__(self, *, delay_s: float = 0.0, seams: Seams = REAL) -> None:
        self._delay_s = delay_s
        self._seams = seams

    @property
    def name(self) -> str:
        return "demo"

    @property
    def schema_with_tools(self) -> bool:
        return False

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """See `ports.model.Model`. Never fails."""
        parts = [self._with_id(p) for p in answer(request)]
        if on_partial is not None:
            for piece in _pieces(parts):
                await on_partial(ModelResponse(content=Content(role="model", parts=[piece]), partial=True))
                if self._delay_s > 0:
                    await anyio.sleep(self._delay_s)
        return ModelResponse(
            content=Content(role="model", parts=parts),
            usage_metadata=_usage(request, parts),
            finish_reason="STOP",
            model_version=self.name,
        )

    @asynccontextmanager
    async def connect(self, request: ModelRequest, config: LiveConfig) -> AsyncGenerator[DemoConnection]:
        """See `ports.live.LiveModel`."""
        request = structs.replace(request, contents=list(request.contents))
        connection = DemoConnection(
            request,
            config,
            lambda asked: [self._with_id(p) for p in answer(asked)],
            is_note=lambda text: _NOTE.match(text) is not None,
            delay_s=self._delay_s,
        )
        try:
            yield connection
        finally:
            connection.closed = True

    async def aclose(self) -> None:
        """Nothing to give back."""

    def _with_id(self, part: Part) -> Part:
        if part.function_call is None:
            return part
        return structs.replace(
            part, function_call=structs.replace(part.function_call, id="adk-" + self._seams.new_id())
        )


class Turn(Struct, frozen=True):
    """What happened since the user's last words: those words, the calls made, and what came back."""

    text: str
    calls: list[FunctionCall]
    responses: list[FunctionResponse]
    handed_over: bool


def read_turn(contents: Sequence[Content]) -> Turn:
    """The current turn at the end of `contents`."""
    at = next((i for i in range(len(contents) - 1, -1, -1) if _is_from_user(contents[i])), -1)
    later = contents[at + 1 :]
    calls = [c for content in later for c in content.calls]
    return Turn(
        text=contents[at].text if at >= 0 else "",
        calls=calls,
        responses=[r for content in later for r in content.responses],
        handed_over=any(c.name == TRANSFER for c in calls) or any(TRANSFER in content.text for content in later),
    )


def _is_from_user(content: Content) -> bool:
    told = any(_CONTEXT.match(p.text) for p in content.parts[1:] if p.text) or _NOTE.match(content.text)
    return content.role == "user" and bool(content.text.strip()) and not told


def answer(request: ModelRequest) -> list[Part]:
    """The parts of the answer: function calls, or one text."""
    turn = read_turn(request.contents)
    by_name = {t.name: t for t in request.tools}
    callable_ = request.config.tool_choice != "none"
    if callable_ and not turn.calls:
        calls = _transfer(request, turn, named=True) or _chosen(request, turn) or _transfer(request, turn, named=False)
        if calls:
            return [Part(function_call=c) for c in calls]
    result_tool = next((by_name[n] for n in RESULT_TOOLS if n in by_name), None)
    if callable_ and result_tool is not None and not any(c.name == result_tool.name for c in turn.calls):
        args = _typed(result_tool.parameters, turn)
        if isinstance(args, dict):
            return [Part(function_call=FunctionCall(name=result_tool.name, args=cast("dict[str, Any]", args)))]
    if request.response_schema is not None:
        value = _typed(request.response_schema, turn)
        if value is not None:
            return [Part(text=encode(value).decode())]
    return [Part(text=_results(turn) if turn.responses else _plain(request, turn))]


# --- choosing tools ---------------------------------------------------------------------------------------------------


def stem(word: str) -> str:
    """`word` in lower case without the ending of a plural."""
    word = word.lower()
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def words_of(text: str) -> list[str]:
    """The words of a text or an identifier that say something, as stems."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [stem(w) for w in _WORD.findall(spaced) if w.lower() not in _DULL]


def _chosen(request: ModelRequest, turn: Turn) -> list[FunctionCall]:
    """Calls of the tools that the text is about, or of the one that must be called."""
    tools = [t for t in request.tools if t.name != TRANSFER and t.name not in RESULT_TOOLS]
    choice = request.config.tool_choice
    if choice in ("auto", "any"):
        picked = _matching(tools, turn.text)
        if not picked and choice == "any":
            picked = tools[:1]
    else:
        picked = [t for t in tools if t.name == choice]
    calls = [call for tool in picked for call in _calls(tool, turn.text)]
    return calls[:MAX_CALLS]


def _matching(tools: Sequence[ToolDeclaration], text: str) -> list[ToolDeclaration]:
    """The tool that shares most words with `text`, and those whose names share a word that no better one shares."""
    said = set(words_of(text))
    ranked: list[tuple[int, ToolDeclaration, set[str], set[str]]] = []
    for tool in tools:
        in_name = said & set(words_of(tool.name))
        hits = in_name | (said & set(words_of(" ".join([tool.description, *tool.parameters.get("properties", {})]))))
        if hits:
            ranked.append((2 * len(in_name) + len(hits), tool, in_name, hits))
    picked: list[ToolDeclaration] = []
    covered: set[str] = set()
    for _, tool, in_name, hits in sorted(ranked, key=lambda r: -r[0]):
        if not picked or in_name - covered:
            picked.append(tool)
            covered |= hits
    return sorted(picked, key=tools.index)


def _calls(tool: ToolDeclaration, text: str) -> list[FunctionCall]:
    """One call, or one for each thing named when the tool takes a single name; none when the arguments cannot be made."""
    schema = tool.parameters
    properties = cast("Schema", schema.get("properties") or {})
    choices_said = " ".join(
        str(v) for s in properties.values() if isinstance(s, dict) for v in mentioned(cast("Schema", s), text)
    )
    subject = set(words_of(f"{tool.name} {tool.description} {choices_said}"))
    hints = read_hints(text, lambda word: stem(word) in subject)
    required = cast("list[str]", schema.get("required") or [])
    texts = [n for n in required if _is_text(properties.get(n))]
    choices: list[list[str]] = [hints.names]
    if len(texts) == 1:
        options = properties[texts[0]]
        named = [str(v) for v in mentioned(options, text)] if "enum" in options else hints.names
        choices = [[name] for name in named] or [[]]
    elif not required and hints.names:
        first = next((n for n, s in properties.items() if _is_text(s)), "")
        schema = {**schema, "required": [first]} if first else schema
        choices = [[name] for name in hints.names] if first else choices
    out: list[FunctionCall] = []
    for names in choices:
        known = {texts[0]: names[0]} if len(texts) == 1 and names else {}
        try:
            args = Filler(schema, structs.replace(hints, names=names, known=known)).fill(schema)
        except Unfillable:
            continue
        if isinstance(args, dict):
            out.append(FunctionCall(name=tool.name, args=cast("dict[str, Any]", args)))
    return [call for i, call in enumerate(out) if call not in out[:i]]


def _is_text(schema: Any) -> bool:
    return isinstance(schema, dict) and types_of(cast("Schema", schema)) == ("string",)


def _transfer(request: ModelRequest, turn: Turn, *, named: bool) -> list[FunctionCall]:
    """A hand-over to the agent that the user names (or that the text fits best), once in a turn."""
    tool = next((t for t in request.tools if t.name == TRANSFER), None)
    if tool is None or turn.handed_over:
        return []
    agents = cast("list[str]", tool.parameters.get("properties", {}).get("agent_name", {}).get("enum") or [])
    said = set(words_of(turn.text))
    best, score = "", 0
    for agent in agents:
        own = set(words_of(agent))
        told = len(own) if own and own <= said else 0
        if not named:
            line = re.search(rf"^\W*{re.escape(agent)}\W+(.*)$", request.system, re.MULTILINE)
            told = len(said & set(words_of(line[1]))) if line else 0
        if told > score:
            best, score = agent, told
    return [FunctionCall(name=TRANSFER, args={"agent_name": best})] if best else []


# --- saying something -------------------------------------------------------------------------------------------------


def _typed(schema: Schema, turn: Turn) -> Any:
    """A value for an output schema out of the results and the user's text; None when none is sure to fit."""
    hints = read_hints(turn.text, lambda word: False)
    known: dict[str, Any] = {}
    for call in turn.calls:
        known.update(call.args)
    for response in turn.responses:
        known.update(_flat(response.response or {}))
    if turn.responses:
        hints.text, hints.names = _results(turn), []
    hints.known = known
    try:
        return Filler(schema, hints, eager=True).fill(schema)
    except Unfillable:
        return None


def _flat(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value))
        else:
            yield key, value


def _results(turn: Turn) -> str:
    """What the tools said, one sentence for each response."""
    by_id = {c.id: c for c in turn.calls if c.id}
    sentences: list[str] = []
    for i, response in enumerate(turn.responses):
        call = by_id.get(response.id) or (turn.calls[i] if i < len(turn.calls) else FunctionCall(name=response.name))
        sentences.append(_sentence(call, response))
    return " ".join(sentences)


def _sentence(call: FunctionCall, response: FunctionResponse) -> str:
    data: Any = response.response or {}
    about = ", ".join(_said(v) for v in call.args.values())
    if "error" in data:
        return f"{call.name} failed{' for ' + about if about else ''}: {_said(data['error'])}".rstrip(".") + "."
    if data.keys() == {"result"}:
        data = data["result"]
    if isinstance(data, dict) and data:
        facts = ", ".join(f"{_spaced(k)} {_said(v)}" for k, v in cast("dict[str, Any]", data).items())
    elif isinstance(data, str) and len(data.split()) > 2:
        return data if data.rstrip()[-1] in ".!?" else data + "."
    else:
        facts = "done" if data in ({}, None) else _said(data)
    return f"{about or _spaced(call.name)}: {facts}."


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _plain(request: ModelRequest, turn: Turn) -> str:
    """An answer without tools: who this is, and what it can do."""
    opening = "Hello! " if _GREETING.match(turn.text) else ""
    tools = [t.name for t in request.tools if t.name != TRANSFER and t.name not in RESULT_TOOLS]
    who = "I am the demo model: a few rules that work offline, no language model."
    can = f" I can use: {', '.join(tools)}." if tools else " I have no tools here."
    if any(t.name == TRANSFER for t in request.tools):
        can += " I can hand over to another agent when you name it."
    heard = f' You said: "{turn.text.strip()[:200]}".' if turn.text.strip() and not opening else ""
    return f"{opening}{who}{heard}{can}"


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """Text word by word, everything else whole."""
    for part in parts:
        if part.text is None:
            yield part
        else:
            yield from (Part(text=word) for word in re.findall(r"\s*\S+|\s+", part.text))


def _usage(request: ModelRequest, parts: Sequence[Part]) -> Usage:
    """Words in the place of tokens."""
    asked = len(request.system.split()) + sum(_count(p) for c in request.contents for p in c.parts)
    said = sum(_count(p) for p in parts)
    return Usage(prompt_token_count=asked, candidates_token_count=said, total_token_count=asked + said)


def _count(part: Part) -> int:
    if part.text is not None:
        return len(part.text.split())
    call = part.function_call or part.function_response
    return len(_WORD.findall(encode(call).decode())) if call is not None else 0
