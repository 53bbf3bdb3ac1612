"""OpenAPI documents as tools: names, schemas, what goes over the wire, and what is refused; without a network."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport.errors import BadRequest, ConfigError, TooLarge
from polyport.tools import openapi_spec, openapi_style
from polyport.tools.credentials import ApiKey, Basic, Bearer, Proof, struck
from polyport.tools.json_schema import check
from polyport.tools.openapi import OpenApiToolset
from polyport.tools.openapi_names import snake
from polyport.tools.openapi_request import HttpRequest, make_request
from polyport.tools.openapi_spec import Document, parse

BASE = "https://api.example.com/v1"


def document(*operations: dict[str, Any], version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    """A document; an operation may say `path` and `method`, else it is `POST /opN`."""
    paths: dict[str, Any] = {}
    for index, operation in enumerate(operations):
        rest = {k: v for k, v in operation.items() if k not in ("path", "method")}
        item = paths.setdefault(operation.get("path", f"/op{index}"), {})
        item[operation.get("method", "post")] = {"responses": {}, **rest}
    info = {"title": "T", "version": "1"}
    return {"openapi": version, "info": info, "servers": [{"url": BASE}], "paths": paths, **more}


def param(name: str, place: str = "query", schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"} if schema is None else schema, **more}


def body(schema: Any, media: str = "application/json", required: bool = True, **more: Any) -> dict[str, Any]:
    return {"required": required, "content": {media: {"schema": schema, **more}}}


def tools_of(spec: Any, **options: Any) -> dict[str, Any]:
    found: list[Any] = anyio.run(OpenApiToolset(spec, **options).load)
    return {tool.name: tool for tool in found}


def one(operation: dict[str, Any], more: dict[str, Any] | None = None, **options: Any) -> Any:
    (tool,) = tools_of(document(operation, **(more or {})), **options).values()
    return tool


FILES = {"photo.png": (b"\x89PNG\r\n", "image/png")}


def sent(tool: Any, args: dict[str, Any]) -> HttpRequest:
    async def read_file(name: str) -> tuple[bytes, str]:
        return FILES[name]

    return anyio.run(make_request, tool.operation, args, read_file)


def refused(tool: Any, args: dict[str, Any]) -> str:
    with pytest.raises(BadRequest) as caught:
        sent(tool, args)
    return str(caught.value)


def schema_of(tool: Any) -> dict[str, Any]:
    return tool.declaration().parameters


# ---- the document


def test_a_toolset_loads_no_http_client_before_it_sends_something():
    code = (
        "import sys; from polyport.tools.openapi import OpenApiToolset;"
        f"OpenApiToolset({document({'operationId': 'a'})!r}); sys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"swagger": "2.0", "paths": {}}, r"Swagger 2.0.*convert"),
        ({"openapi": "2.1.0"}, "3.0 and 3.1"),
        ({"openapi": "3.2.0"}, "3.0 and 3.1"),
        ({"openapi": "30.0"}, "3.0 and 3.1"),
        ({"paths": {}}, "says no version"),
        ({"openapi": "3.1.0", "paths": []}, "paths"),
        ('{"a": 1,\n  b', r"neither JSON nor YAML at line 3"),
        ("a: [1\nb: {", r"neither JSON nor YAML at line"),
        ("[1]\n", "is an object"),
        ("ftp://example.com/a.json", "http or https"),
        ("file:///etc/passwd", "http or https"),
        ("https://user:pw@example.com/a.json", "user name"),
        ("no/such/file.yaml", "cannot be read"),
        (Path("no/such/file.yaml"), "cannot be read"),
    ],
)
def test_a_document_that_cannot_be_used_is_a_config_error(spec: Any, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        OpenApiToolset(spec)
    assert "pw" not in str(caught.value)


def test_json_text_yaml_text_and_files_give_the_same_tools(tmp_path: Path):
    text = """
openapi: 3.1.0
info: {title: T, version: 2020-01-01}
servers: [{url: "https://api.example.com/v1/"}]
paths:
  /things:
    get:
      operationId: listThings
      parameters:
        - {name: on, in: query, schema: {type: string, enum: [no, yes, off, 012, 1e3, 2020-01-01]}}
        - {name: y, in: query, schema: {type: number, default: 1.5, maximum: 10}}
      responses:
        200: {description: fine}
"""
    (tmp_path / "api.yaml").write_text(text)
    (tmp_path / "api.json").write_text(json.dumps(parse(text)))
    path = str(tmp_path / "api.json")
    specs: list[Any] = [text, tmp_path / "api.yaml", path, Path(path), parse(text), json.dumps(parse(text), indent=1)]
    found = [schema_of(tools_of(spec)["list_things"]) for spec in specs]
    assert all(schema == found[0] for schema in found)
    properties = found[0]["properties"]
    assert properties["on"]["enum"] == ["no", "yes", "off", "012", 1000.0, "2020-01-01"]
    assert properties["y"] == {"type": "number", "default": 1.5, "maximum": 10}


def test_yaml_that_repeats_itself_without_end_is_refused():
    layers = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    with pytest.raises(TooLarge):
        OpenApiToolset(f"openapi: 3.0.0\na0: &a0 [x]\n{layers}\n")
    with pytest.raises(TooLarge):
        OpenApiToolset("openapi: 3.0.0\nx: &x\n  y: *x\n")


@pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1.1"])
def test_both_versions_are_taken(version: str):
    assert list(tools_of(document({"operationId": "go"}, version=version))) == ["go"]


def test_an_operation_that_cannot_be_called_is_left_out_and_the_others_are_not(caplog: pytest.LogCaptureFixture):
    spec = document(
        {"operationId": "good"},
        {"operationId": "bad", "parameters": [{"$ref": "#/components/parameters/None"}]},
        {"operationId": "far", "requestBody": {"$ref": "other.yaml#/x"}},
        {"operationId": "odd", "parameters": [param("a", style="matrix")]},
        {"operationId": "header", "parameters": [param("a b", "header")]},
    )
    with caplog.at_level(logging.WARNING):
        toolset = OpenApiToolset(spec)
    assert [tool.name for tool in anyio.run(toolset.load)] == ["good"]
    assert list(toolset.left_out) == ["POST /op1", "POST /op2", "POST /op3", "POST /op4"]
    assert "leads nowhere" in toolset.left_out["POST /op1"] and "another document" in toolset.left_out["POST /op2"]
    assert len(caplog.records) == 4


def test_a_schema_reference_that_leads_nowhere_loosens_only_that_schema(caplog: pytest.LogCaptureFixture):
    schema = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/None"}, "b": {"type": "integer"}}}
    with caplog.at_level(logging.WARNING):
        tool = one({"requestBody": body(schema)})
    assert schema_of(tool)["properties"] == {"a": {}, "b": {"type": "integer"}}
    assert "anything is allowed" in caplog.text


def test_no_remote_reference_is_ever_fetched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.socket.connect", None)
    tool = one({"requestBody": body({"type": "object", "properties": {"a": {"$ref": "https://example.com/s.json"}}})})
    assert schema_of(tool)["properties"] == {"a": {}}


# ---- servers


def test_servers_of_operation_path_and_document_and_base_url():
    spec = document({"operationId": "a"}, {"operationId": "b"}, {"operationId": "c"})
    spec["servers"] = [
        {"url": "https://{host}/{version}/", "variables": {"host": {"default": "h"}, "version": {"default": 2}}}
    ]
    spec["paths"]["/op1"]["servers"] = [{"url": "https://path.example"}]
    spec["paths"]["/op2"]["servers"] = [{"url": "https://path.example"}]
    spec["paths"]["/op2"]["post"]["servers"] = [{"url": "http://operation.example:81/x"}]
    urls = [sent(tool, {}).url for tool in tools_of(spec).values()]
    assert urls == ["https://h/2/op0", "https://path.example/op1", "http://operation.example:81/x/op2"]
    urls = [sent(tool, {}).url for tool in tools_of(spec, base_url="https://mine.example/api/").values()]
    assert urls == [f"https://mine.example/api/op{n}" for n in range(3)]


@pytest.mark.parametrize(
    "url", ["ftp://h", "/v1", "https://", "https://a:b@h", "https://h?x=1", "https://{h}", "h:80", "https://h\\x"]
)
def test_a_base_url_must_be_a_plain_http_url(url: str):
    with pytest.raises(ConfigError):
        OpenApiToolset(document(), base_url=url)
    toolset = OpenApiToolset({**document({"operationId": "a"}), "servers": [{"url": url}]})
    assert list(toolset.left_out) == ["POST /op0"]


@pytest.mark.parametrize(
    ("source", "server", "ok"),
    [
        ("https://api.example.com/x/spec.json", "/v2", "https://api.example.com/v2"),
        ("https://api.example.com/x/spec.json", "v2", "https://api.example.com/x/v2"),
        ("https://api.example.com/x/spec.json", "https://other.example", "https://other.example"),
        ("https://api.example.com/x/spec.json", "http://169.254.169.254/latest", None),
        ("https://api.example.com/x/spec.json", "http://localhost:8080", None),
        ("https://api.example.com/x/spec.json", "http://[::1]", None),
        ("https://api.example.com/x/spec.json", "http://metadata", None),
        ("https://api.example.com/x/spec.json", "http://10.0.0.8", None),
        ("http://localhost:8000/spec.json", "http://127.0.0.1:9000", "http://127.0.0.1:9000"),
    ],
)
def test_a_document_from_elsewhere_cannot_point_into_this_network(source: str, server: str, ok: str | None):
    found = Document({**document(), "servers": [{"url": server}]}, source)
    if ok is not None:
        assert found.server() == ok
    else:
        with pytest.raises(ConfigError, match="inside this network"):
            found.server()


def test_a_fetched_document_without_servers_means_its_own_host():
    spec = {k: v for k, v in document().items() if k != "servers"}
    assert Document(spec, "https://h.example/a/b.json").server() == "https://h.example"
    with pytest.raises(ConfigError, match="base_url"):
        Document(spec).server()


# ---- names


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("listUsers", "list_users"),
        ("getHTTPStatusByID", "get_http_status_by_id"),
        ("users/list-all.v2", "users_list_all_v2"),
        ("Ünïcode", "n_code"),
        ("", "post_op0"),
        ("日本", "post_op0"),
        ("2fast", "op_2fast"),
        ("x" * 80, "x" * 64),
    ],
)
def test_tool_names(id: str, name: str):
    assert one({"operationId": id}).name == name


def test_names_are_unique_with_a_prefix_and_without_an_operation_id():
    spec = document(
        {"operationId": "do it"},
        {"operationId": "doIt"},
        {"operationId": "do-it"},
        {"operationId": "y" * 90},
        {"operationId": "y" * 91},
        {"path": "/users/{userId}/pets", "method": "get"},
    )
    names = list(tools_of(spec, prefix="shop_"))
    assert names[:3] == ["shop_do_it", "shop_do_it_2", "shop_do_it_3"]
    assert names[3] == "shop_" + "y" * 59 and names[4] == "shop_" + "y" * 57 + "_2"
    assert names[5] == "shop_get_users_user_id_pets"


@pytest.mark.parametrize("prefix", ["1", "a b", "-", "x" * 33, "ä"])
def test_a_prefix_is_checked(prefix: str):
    with pytest.raises(ConfigError, match="prefix"):
        OpenApiToolset(document(), prefix=prefix)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"include": ["list*"]}, ["list_pets", "list_users"]),
        ({"include": "GET *"}, ["list_pets", "get_pet"]),
        ({"include": ["list*"], "exclude": ["listUsers"]}, ["list_pets"]),
        ({"exclude": ["POST /users", "get_pet"]}, ["list_pets"]),
        ({"include": lambda operation: operation.path == "/pets/{id}"}, ["get_pet"]),
        ({"include": []}, []),
    ],
)
def test_include_and_exclude(options: dict[str, Any], names: list[str]):
    spec = document(
        {"operationId": "listPets", "path": "/pets", "method": "get"},
        {"operationId": "getPet", "path": "/pets/{id}", "method": "get"},
        {"operationId": "listUsers", "path": "/users"},
    )
    assert list(tools_of(spec, **options)) == names


def test_a_pattern_that_names_nothing_is_a_config_error():
    with pytest.raises(ConfigError, match=r"include='lst\*'.*there are: list_pets"):
        OpenApiToolset(document({"operationId": "listPets"}), include=["lst*"])


def test_descriptions():
    tool = one({"summary": "List.", "description": "All of\nthem.", "deprecated": True})
    assert tool.description == "Deprecated.\n\nList.\n\nAll of\nthem."
    assert one({"summary": "List", "description": "List them."}).description == "List them."
    assert one({}).description == "POST /op0"
    long = one({"description": "x" * 5000}).description
    assert len(long) == 1024 and long.endswith(" ...")


def test_safe_methods_alone_are_repeated_after_a_crash():
    tools = tools_of(
        document(*({"operationId": m, "method": m} for m in ("get", "head", "post", "put", "delete", "patch")))
    )
    assert {name for name, tool in tools.items() if tool.idempotent} == {"get", "head"}


# ---- FR-105

FR_105 = {
    "operationId": "search",
    "method": "post",
    "path": "/users/{userId}/things/{id}",
    "parameters": [
        param("userId", "path", required=True),
        param("id", "path", required=True),
        param("id", "query"),
        param("page-size", "query", {"type": "integer"}),
        param("class", "query"),
        param("tags", "query", {"type": "array", "items": {"type": "string"}}),
        param("X-Trace-Id", "header"),
    ],
    "requestBody": body(
        {
            "type": "object",
            "properties": {"sessionInfo": {"type": "object", "properties": {"session": {"type": "string"}}}},
        }
    ),
}


def test_FR_105_wire_names_are_exactly_those_of_the_document():
    tool = one(FR_105)
    shown = list(schema_of(tool)["properties"])
    assert shown == ["userId", "id", "id_query", "page-size", "class", "tags", "X-Trace-Id", "sessionInfo"]
    assert schema_of(tool)["required"] == ["userId", "id"]
    assert "query parameter 'id'" in schema_of(tool)["properties"]["id_query"]["description"]
    request = sent(
        tool,
        {
            "userId": "a/b c",
            "id": "1",
            "id_query": "2",
            "page-size": 50,
            "class": "first",
            "tags": ["x", "y&z"],
            "X-Trace-Id": "t-1",
            "sessionInfo": {"session": "s"},
        },
    )
    assert request.url == f"{BASE}/users/a%2Fb%20c/things/1?id=2&page-size=50&class=first&tags=x&tags=y%26z"
    assert request.headers == {"X-Trace-Id": "t-1"}
    assert request.body == b'{"sessionInfo":{"session":"s"}}' and request.media == "application/json"


ODD = {
    "parameters": [param("filter[name]"), param("$top", schema={"type": "integer"}), param("filter name"), param("名")],
}


def test_FR_105_names_that_some_providers_refuse_are_shown_in_others_unless_original_names():
    tool = one(ODD)
    assert list(schema_of(tool)["properties"]) == ["filter_name", "top", "filter_name_query", "p"]
    args = {"filter_name": "a", "top": 5, "filter_name_query": "b", "p": "c"}
    wire = "filter%5Bname%5D=a&%24top=5&filter%20name=b&%E5%90%8D=c"
    assert sent(tool, args).url.partition("?")[2] == wire
    tool = one(ODD, original_names=True)
    assert list(schema_of(tool)["properties"]) == ["filter[name]", "$top", "filter name", "名"]
    args = {"filter[name]": "a", "$top": 5, "filter name": "b", "名": "c"}
    assert sent(tool, args).url.partition("?")[2] == wire


def test_a_suffix_never_takes_the_name_of_another_parameter():
    names = [param("id", "path"), param("id", "query"), param("id_query", "query"), param("id", "header")]
    tool = one(
        {"path": "/x/{id}", "parameters": names, "requestBody": body({"type": "object", "properties": {"id": {}}})}
    )
    assert list(schema_of(tool)["properties"]) == ["id", "id_query_2", "id_query", "id_header", "id_body"]
    args = {"id": "p", "id_query": "r", "id_query_2": "q", "id_header": "h", "id_body": [1]}
    request = sent(tool, args)
    assert request.url == f"{BASE}/x/p?id=q&id_query=r"
    assert (request.headers, request.body) == ({"id": "h"}, b'{"id":[1]}')


# ---- parameters


def test_parameters_of_the_path_are_overridden_by_those_of_the_operation_and_follow_references():
    spec = document(
        {"operationId": "go", "path": "/x/{id}", "method": "get", "parameters": [{"$ref": "#/components/parameters/Q"}]}
    )
    spec["paths"]["/x/{id}"]["parameters"] = [
        param("q", schema={"type": "integer"}),
        param("id", "path", description="Which."),
    ]
    spec["components"] = {
        "parameters": {
            "Q": {"$ref": "#/components/parameters/Real"},
            "Real": param("q", schema={"$ref": "#/components/schemas/S"}),
        },
        "schemas": {"S": {"type": "string", "nullable": True, "example": "x", "xml": {}, "x-go": 1, "title": "S"}},
    }
    tool = tools_of(spec)["go"]
    assert schema_of(tool) == {
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "description": "Which."},
            "q": {"type": ["string", "null"]},
        },
        "required": ["id"],
        "additionalProperties": False,
    }


def test_references_that_are_escaped_lead_to_their_target():
    spec = document(
        {"path": "/a~b/{x y}", "parameters": [param("p")]},
        {"parameters": [{"$ref": "#/paths/~1a~0b~1%7Bx%20y%7D/post/parameters/0"}]},
    )
    assert schema_of(list(tools_of(spec).values())[1])["properties"] == {"p": {"type": "string"}}


def test_a_parameter_of_the_path_that_nobody_declared_is_text():
    tool = one({"path": "/a/{id}.{kind}", "method": "get"})
    assert schema_of(tool)["required"] == ["id", "kind"]
    assert sent(tool, {"id": "1/2", "kind": "json"}).path == "/a/1%2F2.json"


LIST, MAP = ["a", "b c"], {"R": 100, "G": "x,y"}


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, "a;b", "a%3Bb"),
        ("simple", False, LIST, "a,b%20c"),
        ("simple", True, LIST, "a,b%20c"),
        ("simple", False, MAP, "R,100,G,x%2Cy"),
        ("simple", True, MAP, "R=100,G=x%2Cy"),
        ("label", False, "a.b", ".a.b"),
        ("label", False, LIST, ".a,b%20c"),
        ("label", True, LIST, ".a.b%20c"),
        ("label", False, MAP, ".R,100,G,x%2Cy"),
        ("label", True, MAP, ".R=100.G=x%2Cy"),
        ("matrix", False, "blue", ";c=blue"),
        ("matrix", False, "", ";c"),
        ("matrix", False, LIST, ";c=a,b%20c"),
        ("matrix", True, LIST, ";c=a;c=b%20c"),
        ("matrix", False, MAP, ";c=R,100,G,x%2Cy"),
        ("matrix", True, MAP, ";R=100;G=x%2Cy"),
    ],
)
def test_styles_in_a_path(style: str, explode: bool, value: Any, path: str):
    tool = one({"path": "/x/{c}/y", "parameters": [param("c", "path", {}, style=style, explode=explode)]})
    assert sent(tool, {"c": value}).path == f"/x/{path}/y"


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        ("form", True, "a b+c&d=e#f", "c=a%20b%2Bc%26d%3De%23f"),
        ("form", True, "", "c="),
        ("form", True, True, "c=true"),
        ("form", True, 2.0, "c=2"),
        ("form", True, 2.5, "c=2.5"),
        ("form", True, LIST, "c=a&c=b%20c"),
        ("form", False, LIST, "c=a,b%20c"),
        ("form", True, MAP, "R=100&G=x%2Cy"),
        ("form", False, MAP, "c=R,100,G,x%2Cy"),
        ("form", True, [], ""),
        ("form", False, [], ""),
        ("form", True, [{"a": 1}, None], "c=%7B%22a%22%3A1%7D&c=null"),
        ("spaceDelimited", False, LIST, "c=a%20b%20c"),
        ("spaceDelimited", True, LIST, "c=a&c=b%20c"),
        ("spaceDelimited", False, MAP, "c=R%20100%20G%20x%2Cy"),
        ("pipeDelimited", False, LIST, "c=a%7Cb%20c"),
        ("pipeDelimited", False, MAP, "c=R%7C100%7CG%7Cx%2Cy"),
        ("deepObject", True, MAP, "c%5BR%5D=100&c%5BG%5D=x%2Cy"),
        ("deepObject", True, {"a": {"b": [1, 2]}, "c": {}}, "c%5Ba%5D%5Bb%5D=1&c%5Ba%5D%5Bb%5D=2"),
    ],
)
def test_styles_in_a_query(style: str, explode: bool, value: Any, query: str):
    tool = one({"parameters": [param("c", "query", {}, style=style, explode=explode)]})
    assert "&".join(sent(tool, {"c": value}).query) == query


def test_defaults_of_style_and_explode_are_those_of_the_specification():
    items = {"type": "array", "items": {}}
    places = [
        param("q", "query", items),
        param("h", "header", items),
        param("c", "cookie", items),
        param("p", "path", items),
    ]
    tool = one({"path": "/{p}", "parameters": places})
    request = sent(tool, {name: [1, "b;c"] for name in "qhcp"})
    assert request.path == "/1,b%3Bc"
    assert (request.query, request.headers) == (("q=1", "q=b%3Bc"), {"h": "1,b;c"})
    assert request.cookies == ("c=1", "c=b%3Bc")
    pipes = one({"parameters": [param("q", "query", items, style="pipeDelimited")]})
    assert sent(pipes, {"q": [1, 2]}).query == ("q=1%7C2",)


def test_allow_reserved_leaves_what_cannot_end_a_field():
    tool = one({"parameters": [param("q", allowReserved=True)]})
    assert sent(tool, {"q": "a/b?c:d,e&f=g#h+i j%20"}).query == ("q=a/b?c:d,e%26f%3Dg%23h%2Bi%20j%2520",)


def test_a_parameter_with_content_is_sent_as_json():
    parameter = {"name": "f", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    assert sent(one({"parameters": [parameter]}), {"f": {"a": [1]}}).query == ("f=%7B%22a%22%3A%5B1%5D%7D",)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x7f", "a\ud800"])
def test_a_header_cannot_be_broken_out_of(value: str):
    tool = one(
        {"parameters": [param("X-A", "header"), param("X-L", "header", {"type": "array", "items": {"type": "string"}})]}
    )
    assert "X-A" in refused(tool, {"X-A": value})
    assert "X-L" in refused(tool, {"X-L": ["a", value]})


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_path_cannot_be_climbed(value: str):
    tool = one({"path": "/users/{id}/secret", "parameters": [param("id", "path", {})]})
    assert "id" in refused(tool, {"id": value})
    both = one({"path": "/users/{a}{b}", "parameters": [param("a", "path", {}), param("b", "path", {})]})
    assert "a: the path" in refused(both, {"a": ".", "b": value.removesuffix(".")})
    assert sent(tool, {"id": "../../admin?x#y"}).path == "/users/..%2F..%2Fadmin%3Fx%23y/secret"
    assert sent(tool, {"id": "%2e%2e"}).path == "/users/%252e%252e/secret"


def test_headers_that_openapi_or_http_keep_for_themselves_are_no_arguments(caplog: pytest.LogCaptureFixture):
    names = ["Accept", "content-type", "AUTHORIZATION", "Host", "Content-Length", "Transfer-Encoding", "X-Ok"]
    with caplog.at_level(logging.WARNING):
        tool = one({"parameters": [param(name, "header") for name in names]})
    assert list(schema_of(tool)["properties"]) == ["X-Ok"]
    assert sorted(record.args[0] for record in caplog.records) == ["Content-Length", "Host", "Transfer-Encoding"]  # type: ignore[index]


def test_what_the_toolset_fills_in_the_model_is_not_asked_for():
    names = [param("X-Tenant", "header"), param("api_key", "query"), param("x-tenant", "query"), param("q")]
    tool = one({"parameters": names}, headers={"x-tenant": "acme"}, auth=ApiKey("k", "api_key", "query"))
    assert list(schema_of(tool)["properties"]) == ["x-tenant", "q"]


# ---- arguments


def test_arguments_that_do_not_fit_are_all_named_and_nothing_is_sent():
    parameters = [
        param("n", schema={"type": "integer"}, required=True),
        param("kind", schema={"type": "string", "enum": ["a"]}),
    ]
    tool = one({"operationId": "go", "parameters": parameters})
    message = refused(tool, {"kind": "b", "page_size": 1})
    assert message.startswith("bad arguments for tool 'go'")
    assert "n: is missing" in message and "kind: must be one of 'a'" in message and "page_size: is not known" in message


def test_null_for_an_optional_argument_means_not_given():
    parameters = [param("a"), param("b", schema={"type": "string", "nullable": True}), param("c", required=True)]
    tool = one(
        {"parameters": parameters, "requestBody": body({"type": "object", "properties": {"d": {"type": "string"}}})}
    )
    request = sent(tool, {"a": None, "b": None, "c": "x", "d": None})
    assert (request.query, request.body) == (("b=null", "c=x"), b"{}")
    assert "c: must be a string" in refused(tool, {"c": None})


def test_recursive_schemas_keep_their_reference_and_are_checked():
    spec = document({"operationId": "go", "requestBody": body({"$ref": "#/components/schemas/Node"})})
    spec["components"] = {
        "schemas": {
            "Node": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
                },
            }
        }
    }
    tool = tools_of(spec)["go"]
    assert schema_of(tool)["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    assert sent(tool, {"name": "a", "children": [{"name": "b"}]}).body == b'{"name":"a","children":[{"name":"b"}]}'
    assert "children[0].name: is missing" in refused(tool, {"name": "a", "children": [{}]})


# ---- bodies


READ_ONLY = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "string", "readOnly": True},
        "name": {"type": "string"},
        "owner": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "integer", "readOnly": True}, "role": {}},
        },
    },
}


def test_read_only_properties_are_left_out_of_bodies_at_every_depth():
    tool = one({"requestBody": body(READ_ONLY)})
    assert schema_of(tool)["properties"] == {
        "name": {"type": "string"},
        "owner": {"type": "object", "properties": {"role": {}}},
    }
    assert schema_of(tool)["required"] == ["name"]
    assert "id: is not known" in refused(tool, {"name": "a", "id": "1"})
    assert "owner.id: is not allowed" in refused(tool, {"name": "a", "owner": {"id": 1}})
    assert sent(tool, {"name": "a", "owner": {"role": 1}}).body == b'{"name":"a","owner":{"role":1}}'


def test_all_of_becomes_one_object():
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Named"},
            {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}},
        ]
    }
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    tool = one({"requestBody": body(schema)}, {"components": {"schemas": {"Named": named}}})
    assert schema_of(tool)["properties"] == {"name": {"type": "string"}, "age": {"type": "integer"}}
    assert schema_of(tool)["required"] == ["name", "age"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]},
        {},
    ],
)
def test_a_body_that_is_no_plain_record_is_one_argument(schema: Any):
    tool = one({"requestBody": {**body(schema), "description": "The thing."}})
    assert list(schema_of(tool)["properties"]) == ["body"] and schema_of(tool)["required"] == ["body"]
    assert schema_of(tool)["properties"]["body"]["description"] == "The thing."
    value = [1, 2] if schema.get("type") == "array" else {"a": 1}
    assert json.loads(sent(tool, {"body": value}).body or b"") == value


def test_an_optional_body_is_sent_only_if_an_argument_is_given_and_then_it_must_be_whole():
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    tool = one({"requestBody": body(schema, required=False)})
    assert "required" not in schema_of(tool)
    assert sent(tool, {}).body is None and sent(tool, {}).media == ""
    assert "a: is missing" in refused(tool, {"b": 1})
    assert sent(tool, {"a": "x"}).body == b'{"a":"x"}'
    whole = one({"requestBody": body({"type": "array"}, required=False)})
    assert sent(whole, {}).body is None and sent(whole, {"body": []}).body == b"[]"
    assert sent(one({"requestBody": body({"type": "object", "properties": {"a": {}}})}), {}).body == b"{}"


@pytest.mark.parametrize(
    ("content", "media"),
    [
        (["application/xml", "application/json"], "application/json"),
        (["multipart/form-data", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
        (["text/plain", "application/vnd.api+json; charset=utf-8"], "application/vnd.api+json; charset=utf-8"),
        (["application/octet-stream", "text/csv"], "text/csv"),
        (["*/*"], "application/json"),
    ],
)
def test_which_media_type_is_sent(content: list[str], media: str):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = one({"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in content}}})
    args = {"a": "1"} if "a" in schema_of(tool)["properties"] else {"body": "1"}
    assert sent(tool, args).media == media


def test_url_encoded_forms():
    schema = {"type": "object", "properties": {"na me": {}, "list": {}, "obj": {}, "deep": {}, "csv": {}}}
    encoding = {"deep": {"style": "deepObject", "explode": True}, "csv": {"explode": False}}
    tool = one(
        {"requestBody": body(schema, "application/x-www-form-urlencoded", encoding=encoding)}, original_names=True
    )
    request = sent(
        tool, {"na me": "a b&c=d+e", "list": [1, "x"], "obj": {"k": 1}, "deep": {"k": "v w"}, "csv": ["a", "b"]}
    )
    assert request.media == "application/x-www-form-urlencoded"
    assert request.body == (b"na+me=a+b%26c%3Dd%2Be&list=1&list=x&obj=%7B%22k%22%3A1%7D&deep%5Bk%5D=v+w&csv=a,b")


def test_multipart_forms_with_files_from_artifacts_and_from_text():
    binary = {"type": "string", "format": "binary"}
    schema = {
        "type": "object",
        "properties": {
            "caption": {"type": "string"},
            "meta": {"type": "object"},
            "photo": binary,
            "more": {"type": "array", "items": binary},
            "data": {"contentMediaType": "text/csv"},
        },
    }
    encoding = {"data": {"contentType": "text/csv"}, "photo": {"contentType": "image/png, image/jpeg"}}
    tool = one({"requestBody": body(schema, "multipart/form-data", encoding=encoding)})
    assert "artifact:NAME" in schema_of(tool)["properties"]["photo"]["description"]
    assert "artifact:NAME" in schema_of(tool)["properties"]["more"]["items"]["description"]
    args = {"caption": "artifact:no", "meta": {"a": 1}, "photo": "artifact:photo.png", "more": ["x"], "data": "a,b"}
    parts = [(p.name, p.data, p.media, p.filename) for p in sent(tool, args).parts]
    assert parts == [
        ("caption", b"artifact:no", "text/plain", ""),
        ("meta", b'{"a":1}', "application/json", ""),
        ("photo", b"\x89PNG\r\n", "image/png", "photo.png"),
        ("more", b"x", "text/plain", "more"),
        ("data", b"a,b", "text/csv", "data"),
    ]


def test_bodies_of_text_and_of_bytes():
    text = one({"requestBody": body({"type": "string"}, "text/csv")})
    assert sent(text, {"body": "artifact:photo.png"}).body == b"artifact:photo.png"
    data = one({"requestBody": body({}, "image/png")})
    assert sent(data, {"body": "artifact:photo.png"}).body == b"\x89PNG\r\n"
    assert sent(data, {"body": "x"}).media == "image/png"
    assert "body: must be a string" in refused(data, {"body": 5})


def test_text_that_is_no_unicode_is_refused_everywhere():
    bad = "\ud800"
    parts = [param("p", "path"), param("q")]
    tool = one({"path": "/{p}", "parameters": parts, "requestBody": body({"type": "object", "properties": {"b": {}}})})
    for args in ({"p": bad}, {"p": "x", "q": bad}, {"p": "x", "b": bad}):
        assert "Unicode" in refused(tool, args)


# ---- properties

SCALARS = st.one_of(st.text(max_size=8), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=5), SCALARS, max_size=3))
PLACES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    parameters = [
        param(f"{place}{n}", place, {}, style=draw(st.sampled_from(PLACES[place])), explode=draw(st.booleans()))
        for place in PLACES
        for n in range(2)
    ]
    tool = one({"path": "/a/{path0}/b{path1}c/d", "parameters": parameters})
    return tool, {p["name"]: draw(VALUES) for p in parameters}


@settings(deadline=None, max_examples=100)
@given(calls())
def test_any_arguments_keep_the_shape_of_the_request(made: tuple[Any, dict[str, Any]]):
    tool, args = made
    assert check(args, schema_of(tool)) == []
    try:
        request = sent(tool, args)
    except BadRequest as error:
        assert error.field in args or "Unicode" in str(error)
        assert error.field != "path1" and not error.field.startswith(("query", "cookie"))
        return
    assert request.url.startswith(f"{BASE}/a/")
    path = request.url.removeprefix(BASE).partition("?")[0]
    segments = path.split("/")
    assert len(segments) == 5 and segments[1] == "a" and segments[4] == "d"
    assert not {unquote(segment) for segment in segments[1:]} & {"", ".", ".."}
    assert request.url.isascii() and request.url.isprintable() and "#" not in request.url and " " not in request.url
    assert set(request.headers) == {"header0", "header1"}
    for value in (*request.headers.values(), *request.cookies):
        assert not any(ord(c) < 32 or ord(c) == 127 for c in value)
    assert not any(set(cookie) & set('; ",\\') - {","} for cookie in request.cookies)
    assert not any("&" in field or "#" in field for field in request.query)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_survives_the_query_and_the_path(name: str, value: str):
    encodable = value.encode("utf-8", "ignore").decode()
    (pair,) = openapi_style.in_query("q", encodable, "form", True)
    assert unquote(pair.partition("=")[2]) == encodable
    assert unquote(openapi_style.in_path("q", encodable, "simple", False)) == encodable
    assert snake(name).isascii() and not set(snake(name)) & set(" /-.")


# ---- credentials


def test_a_secret_has_no_repr():
    for credential in (ApiKey("hunter2-key"), Bearer("hunter2-key"), Basic("me", "hunter2-key")):
        assert "hunter2" not in repr(credential)
    toolset = OpenApiToolset(document(), auth=Bearer("hunter2-key"), headers={"X-Token": "hunter2-key"})
    assert "hunter2" not in repr(toolset)
    assert "hunter2" not in repr(Proof(headers={"a": "hunter2"}, query=(("a", "hunter2"),)))


def test_secrets_are_struck_out_at_every_depth_and_in_every_spelling():
    proof = Proof(headers={"Authorization": "Bearer abc/defgh", "X-Tenant": "tenant-1"}, query=(("k", "query key"),))
    plain = {"a": ["x abc/defgh y", {"query key": "abc%2Fdefgh", "n": 5}], "t": "tenant-1", "u": "?k=query%20key"}
    assert struck(plain, proof.secrets) == {"a": ["x *** y", {"***": "***", "n": 5}], "t": "tenant-1", "u": "?k=***"}


SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "Bearer"},
    "digest": {"type": "http", "scheme": "digest"},
}


def secured(**more: Any) -> dict[str, Any]:
    return document(
        {"operationId": "root"},
        {"operationId": "open", "security": []},
        {"operationId": "both", "security": [{"digest": []}, {"key": [], "basic": []}]},
        {"operationId": "maybe", "security": [{}, {"key": []}]},
        {"operationId": "other", "security": [{"digest": []}]},
        components={"securitySchemes": SCHEMES},
        **{"security": [{"bearer": []}], **more},
    )


def test_credentials_follow_the_security_of_the_document():
    tools = tools_of(secured(), auth={"key": "k", "basic": "me:pw", "bearer": "t"})
    found = {name: tool._credentials for name, tool in tools.items()}
    assert found == {
        "root": (Bearer("t"),),
        "open": (),
        "both": (ApiKey("k", "X-Key", "header"), Basic("me", "pw")),
        "maybe": (),
        "other": (),
    }
    everywhere = tools_of(secured(), auth=Bearer("t"))
    assert {name for name, tool in everywhere.items() if tool._credentials} == {"root", "both", "maybe", "other"}


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"kye": "k"}, "no security scheme 'kye'; it has: key, basic"),
        ({"basic": "pw"}, "user:password"),
        ({"digest": "x"}, "digest.*function"),
        ({"key": ""}, "must be a credential"),
        ({"key": 5}, "must be a credential"),
        ("secret", "one security scheme"),
    ],
)
def test_auth_that_does_not_fit_the_document_is_a_config_error(auth: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        OpenApiToolset(secured(), auth=auth)


def test_a_text_is_for_the_only_scheme():
    spec = document(
        {"operationId": "a", "security": [{"k": []}]}, components={"securitySchemes": {"k": SCHEMES["bearer"]}}
    )
    assert tools_of(spec, auth="t")["a"]._credentials == (Bearer("t"),)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://10.1.2.3", "http://[fe80::1]/x", "http://db", "http://x.internal"]
)
def test_what_is_inside(url: str):
    assert openapi_spec.is_inside(url)
    assert not openapi_spec.is_inside("https://api.example.com/x") and not openapi_spec.is_inside("https://8.8.8.8")
