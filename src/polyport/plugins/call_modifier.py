"""CallModifierPlugin: asks the model for extra arguments that the tools do not have, such as a reason (spec core 7).

Used in `App(plugins=[...])`. The extra properties are added to the declarations of a request, on copies; the arguments are
taken out of the model's calls before a tool sees them, and kept in the state as `<callId>/<argument>`. Never calls a tool.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from msgspec import structs

from polyport.data.content import Content, FunctionCall, PartialArg
from polyport.data.model import ModelRequest, ModelResponse, Schema, ToolDeclaration
from polyport.errors import ConfigError
from polyport.ports.agent import CallbackContext
from polyport.ports.plugin import Plugin


class CallModifierPlugin(Plugin):
    """Adds `properties` (name -> JSON Schema) to the tools named by `tools`: names, or a function of the name; None is all.

    Those in `required` must be given by the model. `describe(declaration)` may write a tool's description anew. State keys
    start with `prefix`; "temp:" keeps the values for the run only, by default they stay with the session. ConfigError for a
    property that a tool has already.
    """

    def __init__(
        self,
        properties: Mapping[str, Schema],
        *,
        tools: Collection[str] | Callable[[str], bool] | None = None,
        required: Collection[str] = (),
        describe: Callable[[ToolDeclaration], str] | None = None,
        prefix: str = "",
        name: str = "call_modifier",
    ) -> None:
        unknown = sorted(set(required) - set(properties))
        if unknown:
            raise ConfigError(f"required names {', '.join(unknown)}, which properties does not have")
        self.name = name
        self._properties = dict(properties)
        self._required = [key for key in self._properties if key in required]
        self._tools = tools
        self._describe = describe
        self._prefix = prefix

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> None:
        """Put changed copies of the matching declarations into the request."""
        request.tools = [self._extended(t) if self._matches(t.name) else t for t in request.tools]

    async def after_model(self, ctx: CallbackContext, response: ModelResponse) -> ModelResponse | None:
        """The response without the extra arguments; None when it has none, so that other callbacks are asked."""
        content = response.content
        if content is None or not any(self._has_extra(call) for call in content.calls):
            return None
        parts = [
            structs.replace(part, function_call=self._without(ctx, part.function_call, keep=not response.partial))
            if part.function_call is not None and self._has_extra(part.function_call)
            else part
            for part in content.parts
        ]
        return structs.replace(response, content=Content(role=content.role, parts=parts))

    def _matches(self, tool: str) -> bool:
        if self._tools is None:
            return True
        return self._tools(tool) if callable(self._tools) else tool in self._tools

    def _extended(self, declaration: ToolDeclaration) -> ToolDeclaration:
        schema = declaration.parameters
        own = cast("dict[str, Any]", schema.get("properties") or {})
        if clash := sorted(own.keys() & self._properties.keys()):
            raise ConfigError(
                f"CallModifierPlugin cannot add {', '.join(clash)} to tool {declaration.name!r}, which has it already; "
                "rename the property, or leave the tool out with tools="
            )
        changed = {**schema, "properties": {**own, **self._properties}}
        if self._required:
            changed["required"] = [*schema.get("required", ()), *self._required]
        description = self._describe(declaration) if self._describe is not None else declaration.description
        return structs.replace(declaration, parameters=changed, description=description)

    def _has_extra(self, call: FunctionCall) -> bool:
        if not self._matches(call.name):
            return False
        return not self._properties.keys().isdisjoint(call.args) or any(map(self._is_extra, call.partial_args))

    def _is_extra(self, piece: PartialArg) -> bool:
        """Whether a streamed piece of arguments belongs to an extra one."""
        path = piece.json_path.removeprefix("$").removeprefix(".")
        return path.split(".", 1)[0].split("[", 1)[0] in self._properties

    def _without(self, ctx: CallbackContext, call: FunctionCall, *, keep: bool) -> FunctionCall:
        """The call without the extra arguments, which are kept in the state unless this is only a piece."""
        extra = {key: value for key, value in call.args.items() if key in self._properties}
        call_id = call.id
        if keep and extra:
            call_id = call_id or f"adk-{ctx.scope.seams.new_id()}"
            for key, value in extra.items():
                ctx.state[f"{self._prefix}{call_id}/{key}"] = value
        return structs.replace(
            call,
            id=call_id,
            args={key: value for key, value in call.args.items() if key not in extra},
            partial_args=[piece for piece in call.partial_args if not self._is_extra(piece)],
        )
