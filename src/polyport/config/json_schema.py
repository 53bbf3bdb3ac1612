"""The JSON Schema of agent files, for editors: completion, descriptions, red lines under what the loader would refuse.

Called by `polyport schema`; made of the Structs of `config/schema`, so that it cannot say something else than the loader. Knows
nothing of a project: whether a file or a function exists, only the loader can say.
"""

from typing import Any, cast

from msgspec import inspect

from polyport.config import schema
from polyport.config.schema_tools import TOOLS, ToolSection
from polyport.config.yaml_app import PLUGINS
from polyport.config.yaml_models import PROVIDERS
from polyport.config.yaml_read import Section
from polyport.config.yaml_text import Node
from polyport.tools.builtin import BUILTIN
from polyport.version import VERSION

DRAFT = "http://json-schema.org/draft-07/schema#"
"""What all editors know."""

_SIMPLE: dict[type[inspect.Type], Any] = {
    inspect.StrType: {"type": ["string", "number", "boolean"]},  # a text field takes every word
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.AnyType: {},
    inspect.NoneType: {"type": "null"},
}

_LATER: dict[tuple[str, str], Any] = {
    ("app", ""): {"$ref": "#/definitions/AppSection"},
    ("sub_agents", "item"): {"$ref": "#/definitions/child"},
    ("agent", ""): {"$ref": "#/definitions/child"},
    ("tools", "item"): {"$ref": "#/definitions/tool"},
    ("fallback", "item"): {"anyOf": [{"type": "string"}, {"$ref": "#/definitions/ModelSection"}]},
    ("tool_filter", "item"): {"type": "string"},
    ("args", "item"): {"type": "string"},
    ("extra", ""): {"type": "object"},
    ("edges", "item"): {"type": "array", "minItems": 2},
    ("nodes", "value"): {"$ref": "#/definitions/node"},
}
"""What a field of the type Node (or its items) holds, by its key."""


def json_schema() -> dict[str, Any]:
    """The schema of one agent file."""
    definitions: dict[str, Any] = {"agent": _agent(), "child": _child(), "tool": _tool(), "node": _node()}
    more = (schema.AppSection, schema.SubAgentSection, ToolSection, *schema.NODES.values())
    for one in (*schema.AGENTS.values(), *TOOLS.values(), *more):
        _define(inspect.type_info(one), definitions)
    definitions["AppSection"]["properties"]["plugins"]["items"]["anyOf"].append({"enum": sorted(PLUGINS)})
    for key in ("type", "provider"):
        definitions["ModelSection"]["properties"][key]["enum"] = list(PROVIDERS)
        del definitions["ModelSection"]["properties"][key]["type"]
    return {
        "$schema": DRAFT,
        "title": f"Agent file of Polyport {VERSION}",
        "allOf": [{"$ref": "#/definitions/agent"}],
        "definitions": dict(sorted(definitions.items())),
    }


def _choose(key: str, choices: dict[str, Any], other: Any) -> Any:
    """The schema in `choices` that the value of `key` names, `other` for any other value, and without one."""
    chain = other
    for value, chosen in reversed(choices.items()):
        named = {"properties": {key: {"const": value}}, "required": [key]}
        chain = {"if": named, "then": chosen, "else": chain}
    return chain


def _ref(cls: type[Section]) -> dict[str, str]:
    return {"$ref": f"#/definitions/{cls.__name__}"}


def _agent() -> Any:
    kinds: dict[str, Any] = {name: _ref(cls) for name, cls in schema.AGENTS.items()}
    kinds |= {name: _ref(cls) for name, cls in schema.NODES.items()}  # files that workflows name
    own = {"properties": {"agent_class": {"pattern": "[.:]"}}, "required": ["agent_class"]}
    of_code = {"if": own, "then": {"required": ["name"]}, "else": kinds.pop("LlmAgent")}
    return {"type": "object", **_choose("agent_class", kinds, of_code)}


def _node() -> Any:
    """A node or agent of `nodes`, which has its name before it."""
    return _choose("agent_class", {name: _ref(cls) for name, cls in schema.NODES.items()}, {"type": "object"})


def _child() -> Any:
    refers = {"anyOf": [{"required": ["config_path"]}, {"required": ["code"]}]}
    reference = {
        "type": "object",
        "properties": {
            "config_path": {"type": "string"},
            "code": {"type": "string"},
            "args": {"type": ["object", "array"]},
            "skip_summarization": {"type": "boolean"},
        },
        "additionalProperties": False,
    }
    return {"type": "object", "if": refers, "then": reference, "else": {"$ref": "#/definitions/agent"}}


def _tool() -> Any:
    names = sorted({*BUILTIN, *TOOLS})
    known = {name: {"properties": {"args": _ref(cls)}} for name, cls in TOOLS.items()}
    mapping = {"allOf": [_ref(ToolSection), _choose("name", known, {})]}
    text = {"type": "string", "anyOf": [{"enum": names}, {"pattern": "."}]}
    return {"if": {"type": "string"}, "then": text, "else": mapping}


def _define(wanted: inspect.Type, definitions: dict[str, Any]) -> None:
    """Put the schema of a Struct, and of all that it has, into `definitions`."""
    assert isinstance(wanted, inspect.StructType)
    name = wanted.cls.__name__
    if name in definitions:
        return
    properties: dict[str, Any] = {}
    definitions[name] = {"type": "object", "properties": properties, "additionalProperties": False}
    required: list[str] = []
    folded = getattr(wanted.cls, "folded", False)
    for one in wanted.fields:
        if one.name == "node":
            continue
        properties[one.name] = _schema(one.type, one.name, definitions)
        if folded:
            properties[_camel(one.name)] = properties[one.name]
        if one.required:
            required.append(one.name)
    if required:
        definitions[name]["required"] = required


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _schema(wanted: inspect.Type, key: str, definitions: dict[str, Any], place: str = "") -> dict[str, Any]:
    if isinstance(wanted, inspect.Metadata):
        found = _schema(wanted.type, key, definitions, place)
        extra: dict[str, Any] = cast("Any", wanted).extra_json_schema or {}  # its stubs leave the type open
        return {"allOf": [found], **extra} if "$ref" in found else {**found, **extra}
    if isinstance(wanted, inspect.UnionType):
        options = [_schema(one, key, definitions, place) for one in wanted.types]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if isinstance(wanted, inspect.StructType):
        if wanted.cls is Node:
            return dict(_LATER.get((key, place), {}))
        _define(wanted, definitions)
        return {"$ref": f"#/definitions/{wanted.cls.__name__}"}
    if isinstance(wanted, inspect.ListType):
        return {"type": "array", "items": _schema(wanted.item_type, key, definitions, "item")}
    if isinstance(wanted, inspect.DictType):
        return {"type": "object", "additionalProperties": _schema(wanted.value_type, key, definitions, "value")}
    if isinstance(wanted, inspect.LiteralType):
        return {"enum": list(wanted.values)}
    return dict(_SIMPLE[type(wanted)])
