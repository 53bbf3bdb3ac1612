"""Tools for models whose server has none: the model is held to a JSON Schema, in which it either calls a tool or answers.

Wraps another model; made for small local ones, which choose well among forms but rarely follow a tool protocol. Each turn is
one call or one answer. It talks to no server itself, and needs one that honours a response schema.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs

from polyport.codec import encode
from polyport.data.content import Content, FunctionCall, Part, model_text, user_text
from polyport.data.model import ModelRequest, ModelResponse, Schema, ToolDeclaration, Usage
from polyport.ports.model import Model, OnPartial
from polyport.seams import REAL, Seams

Example = tuple[str, FunctionCall | str]
"""What a user says, and the right turn after it: a call or an answer."""

_SYSTEM = """Reply with JSON in one of these forms, and nothing else:
{"tool": NAME, "args": ARGUMENTS} to use a tool,
{"answer": TEXT} to answer the user.
Use a tool when one fits the question. After the result of a tool, answer with it.
Tools:
"""


class Constrained:
    """`model`, with tools by constraint. `examples` are shown before the talk; without any, some are made from the tools.

    Small models like to make the same call for ever. One that repeats a call whose result it has since the user's last words
    is asked again, for an answer; unless `repeats`, for tools that are meant to be polled.
    """

    def __init__(
        self, model: Model, *, examples: Sequence[Example] = (), repeats: bool = False, seams: Seams = REAL
    ) -> None:
        self._model = model
        self._examples = tuple(examples)
        self._repeats = repeats
        self._seams = seams

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def schema_with_tools(self) -> bool:
        """True: a response schema takes the place of the answer's text."""
        return True

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """One call, or an answer. Of a streamed turn, only the answer's text and thoughts come in pieces."""
        if not request.tools:
            return await self._model.generate(structs.replace(request, contents=_plain(request.contents)), on_partial)
        answer = await self._turn(request, on_partial)
        if self._repeats or request.config.tool_choice != "auto" or not _repeated(answer, request.contents):
            return answer
        no_calls = structs.replace(request.config, tool_choice="none")
        second = await self._turn(structs.replace(request, config=no_calls), on_partial)
        return structs.replace(second, usage_metadata=_both(answer.usage_metadata, second.usage_metadata))

    async def _turn(self, request: ModelRequest, on_partial: OnPartial | None) -> ModelResponse:
        asked = self._asked(request)
        if on_partial is None:
            return self._read(await self._model.generate(asked))
        said = _AnswerText()

        async def piece(partial: ModelResponse) -> None:
            parts: list[Part] = []
            for part in partial.content.parts if partial.content else ():
                text = part.text or "" if part.thought else said.feed(part.text or "")
                if text:
                    parts.append(Part(text=text, thought=part.thought))
            if parts:
                await on_partial(structs.replace(partial, content=Content(role="model", parts=parts)))

        return self._read(await self._model.generate(asked, piece))

    async def aclose(self) -> None:
        await self._model.aclose()

    def _asked(self, request: ModelRequest) -> ModelRequest:
        """The same question without tools, its schema that of a turn."""
        choice = request.config.tool_choice
        tools = [] if choice == "none" else [t for t in request.tools if choice in ("auto", "any", t.name)]
        answer: Schema | None = request.response_schema or {"type": "string"}
        if choice not in ("auto", "none"):
            answer = None
        system = _SYSTEM + "\n".join(_signature(tool) for tool in request.tools)
        examples = self._examples or _examples(tools, answer)
        shown = [c for said, turn in examples for c in (user_text(said), model_text(_turn(turn)))]
        return structs.replace(
            request,
            system=f"{request.system}\n\n{system}" if request.system else system,
            contents=shown + _told(request.contents),
            tools=[],
            response_schema=turn_schema(tools, answer),
            config=structs.replace(request.config, tool_choice="auto"),
        )

    def _read(self, response: ModelResponse) -> ModelResponse:
        """The turn in the model's JSON. Of an answer that was cut off, the part that came; other text stays as it is."""
        if response.content is None:
            return response
        text = response.content.text
        turn = _parse(text)
        if isinstance(turn.get("tool"), str):
            args = _object(turn.get("args"))
            said = Part(function_call=FunctionCall(id=f"adk-{self._seams.new_id()}", name=turn["tool"], args=args))
        elif "answer" in turn:
            said = Part(text=turn["answer"] if isinstance(turn["answer"], str) else _json(turn["answer"]))
        else:
            said = Part(text=_AnswerText().feed(text) or text)
        thoughts = [part for part in response.content.parts if part.thought]
        return structs.replace(response, content=Content(role="model", parts=[*thoughts, said]))


def turn_schema(tools: Sequence[ToolDeclaration], answer: Schema | None) -> Schema:
    """One JSON Schema for a turn: `{"tool", "args"}` of any of `tools`, or `{"answer"}` unless `answer` is None."""
    defs: dict[str, Schema] = {}
    forms = [_form(tool={"const": t.name}, args=_hoist(t.parameters, f"{t.name}.", defs)) for t in tools]
    if answer is not None:
        forms.append(_form(answer=_hoist(answer, "answer.", defs)))
    schema: Schema = {"oneOf": forms} if len(forms) != 1 else forms[0]
    return {**schema, "$defs": defs} if defs else schema


def _form(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _hoist(schema: Any, prefix: str, defs: dict[str, Schema]) -> Any:
    """The schema for use inside another: its definitions move to `defs`, under names of their own."""
    if isinstance(schema, list):
        return [_hoist(item, prefix, defs) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    out: Schema = {}
    for key, value in cast("Schema", schema).items():
        if key in ("$defs", "definitions") and isinstance(value, dict):
            for name, item in cast("Schema", value).items():
                defs[prefix + name] = _hoist(item, prefix, defs)
        elif key == "$ref" and isinstance(value, str):
            out[key] = re.sub(r"^#/(\$defs|definitions)/", lambda _: f"#/$defs/{prefix}", value)
        else:
            out[key] = _hoist(value, prefix, defs)
    return out


def _repeated(answer: ModelResponse, contents: Sequence[Content]) -> bool:
    """Whether the turn makes a call that was made since the user's last words."""
    calls = [(c.name, c.args) for c in answer.content.calls] if answer.content is not None else []
    for content in reversed(contents) if calls else ():
        if content.role != "model" and any(part.text for part in content.parts):
            return False
        if any((c.name, c.args) in calls for c in content.calls):
            return True
    return False


def _both(first: Usage | None, second: Usage | None) -> Usage | None:
    """The tokens of two questions together."""
    if first is None or second is None:
        return first or second
    counts = [name for name in Usage.__struct_fields__ if name.endswith("_token_count")]
    known = {name: (getattr(first, name), getattr(second, name)) for name in counts}
    return structs.replace(second, **{k: (a or 0) + (b or 0) for k, (a, b) in known.items() if (a, b) != (None, None)})


def _json(value: Any) -> str:
    return encode(value).decode()


def _turn(turn: FunctionCall | str) -> str:
    return _json({"answer": turn} if isinstance(turn, str) else {"tool": turn.name, "args": turn.args})


def _signature(tool: ToolDeclaration) -> str:
    properties: dict[str, Schema] = tool.parameters.get("properties", {})
    notes = {name: item.get("description") or item.get("type", "any") for name, item in properties.items()}
    return f"- {tool.name}({', '.join(f'{k}: {v}' for k, v in notes.items())}): {tool.description}".rstrip(": ")


def _told(contents: Sequence[Content]) -> list[Content]:
    """The talk so far in the forms of a turn; what is neither text, call nor result stays as it is."""
    out: list[Content] = []
    for content in contents:
        parts: list[Part] = []
        for part in content.parts:
            if part.function_call is not None:
                parts.append(Part(text=_turn(part.function_call)))
            elif part.function_response is not None:
                response = part.function_response
                parts.append(Part(text=f"Result of {response.name}: {_json(response.response)}"))
            elif content.role == "model" and part.text and not part.thought:
                parts.append(Part(text=_turn(part.text)))
            else:
                parts.append(part)
        out.append(structs.replace(content, parts=parts))
    return out


def _plain(contents: Sequence[Content]) -> list[Content]:
    """Without tools there are no forms: only calls and results need words."""
    return [
        told if content.calls or content.responses else content
        for content, told in zip(contents, _told(contents), strict=True)
    ]


_WORDS = ("Oslo", "apple", "Maria", "blue")


def _examples(tools: Sequence[ToolDeclaration], answer: Schema | None) -> list[Example]:
    """An answer, then a call of each of the first tools in the words of its description.

    The order was found by trial with a model of 135M parameters: ending on an answer, it answers everything.
    """
    out: list[Example] = []
    if answer is not None and answer.get("type") == "string":
        out.append(("Hello!", "Hello! How can I help you?"))
    words = [*_WORDS]
    for tool in tools[:4]:
        args: dict[str, Any] = _sample(tool.parameters, words)
        values = ", ".join(value if isinstance(value, str) else _json(value) for value in args.values())
        what = tool.description.splitlines()[0].rstrip(".") if tool.description else tool.name.replace("_", " ")
        out.append((f"{what}: {values}" if values else what, FunctionCall(name=tool.name, args=args)))
    return out


def _sample(schema: Schema, words: list[str]) -> Any:
    """Some value of the schema. `words` are used up, so that arguments differ."""
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _sample(schema[key][0], words)
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = cast("list[Any]", kind)[0]
    if kind == "object":
        properties: dict[str, Schema] = schema.get("properties", {})
        required: list[str] = schema.get("required", [])
        return {name: _sample(item, words) for name, item in properties.items() if name in required}
    if kind == "array":
        return [_sample(schema.get("items", {}), words)]
    numbers: dict[Any, Any] = {"integer": len(words) + 3, "number": len(words) + 0.5, "boolean": True, "null": None}
    if kind in numbers:
        if kind in ("integer", "number") and words:
            words.pop()
        return numbers[kind]
    return words.pop(0) if words else "something"


def _parse(text: str) -> dict[str, Any]:
    """The JSON object in the text, or {} when there is none."""
    try:
        return _object(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


_HEAD = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*"
)


class _AnswerText:
    """Takes the JSON of a turn in pieces and gives the text of its answer as far as it is whole, escapes undone."""

    def __init__(self) -> None:
        self._raw = ""
        self._inside = False

    def feed(self, piece: str) -> str:
        self._raw += piece
        if not self._inside:
            head = _HEAD.match(self._raw)
            if head is None:
                return ""
            self._inside = True
            self._raw = self._raw[head.end() :]
        whole = _WHOLE.match(self._raw)
        end = whole.end() if whole else 0
        text, self._raw = self._raw[:end], self._raw[end:]
        return json.loads(f'"{text}"', strict=False) if text else ""
