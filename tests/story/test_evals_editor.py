"""The YAML editor and the consent flag over HTTP, and who may use the routes that change something."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import polyport.config.schema_tools  # noqa: F401  its sections count, too
from polyport import App
from polyport.config.schema import CodeSection
from polyport.config.yaml_read import Section
from polyport.data.auth import Caller, Credentials
from polyport.errors import BadRequest, Forbidden
from polyport.ports.auth import Auth
from polyport.protocols.evals.drafts import TEXT_KEYS, check_yaml
from polyport.protocols.evals.mount import Evals
from polyport.protocols.guard import Guard
from polyport.testing import connect
from polyport.testing.connect import Client
from support.evals import DEV, PARIS, eval_set, evals_served, weather, written

EDITOR = "/dev/apps/yamly/builder"
GOOD = "agent_class: LlmAgent\nname: yamly\nmodel: gemini-2.5-flash\ninstruction: Be kind.\ntools:\n  - name: google_search\n"


def form(*files: tuple[str, str | bytes]) -> dict[str, Any]:
    """Options of a request that uploads files as a browser does."""
    parts = b""
    for name, text in files:
        content = text.encode() if isinstance(text, str) else text
        head = f'--xx\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\nContent-Type: application/x-yaml'
        parts += head.encode() + b"\r\n\r\n" + content + b"\r\n"
    return {"body": parts + b"--xx--\r\n", "headers": {"content-type": "multipart/form-data; boundary=xx"}}


async def save(client: Client, *files: tuple[str, str | bytes], tmp: bool = False) -> Any:
    response = await client.post(f"{EDITOR}/save", query={"tmp": "true"} if tmp else None, **form(*files))
    assert response.status == 200, response.text
    return response.json()


async def read(client: Client, **query: str) -> str:
    response = await client.get(EDITOR, query=query)
    assert response.status == 200 and response.headers["cache-control"] == "no-store"
    kind = response.headers["content-type"]
    assert kind == ("application/x-yaml" if response.body else "text/plain; charset=utf-8")
    return response.text


async def test_a_draft_is_saved_read_put_in_place_and_cancelled(tmp_path: Path):
    app = tmp_path / "yamly"
    async with evals_served(tmp_path) as client:
        assert await read(client) == ""
        assert await save(client, ("yamly/root_agent.yaml", GOOD), tmp=True) is True
        assert await read(client) == "", "a draft is not in use"
        assert await read(client, tmp="true", ts="1") == GOOD
        assert not (app / "root_agent.yaml").exists()
        # saved for good: the draft first, then the files of the request, and the draft is gone
        assert await save(client, ("yamly/sub/helper.yaml", GOOD)) is True
        assert await read(client) == GOOD
        assert await read(client, file_path="sub/helper.yaml") == GOOD
        assert sorted(p.name for p in app.rglob("*")) == ["helper.yaml", "root_agent.yaml", "sub"]
        # a draft that is thrown away
        assert await save(client, ("root_agent.yaml", GOOD + "# new\n"), tmp=True) is True
        assert await read(client, tmp="true") == GOOD + "# new\n"
        assert (await client.post(f"{EDITOR}/cancel")).json() is True
        assert await read(client, tmp="true") == GOOD
        assert (await client.post(f"{EDITOR}/cancel")).json() is True


@pytest.mark.parametrize(
    "path",
    ["../other/root_agent.yaml", "/etc/passwd", "agent.py", "none.yaml", ".env", "x/../../a.yaml", "a\\b.yaml", ""],
)
async def test_reading_never_leaves_the_folder_and_answers_nothing(tmp_path: Path, path: str):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "root_agent.yaml").write_text("secret: 1")
    (tmp_path / "yamly").mkdir()
    (tmp_path / "yamly" / "agent.py").write_text("secret = 1")
    (tmp_path / "yamly" / "root_agent.yaml").symlink_to(tmp_path / "other" / "root_agent.yaml")
    async with evals_served(tmp_path) as client:
        assert await read(client, file_path=path) == ""


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("../x/root_agent.yaml", GOOD, "Path traversal rejected"),
        ("yamly/../../x.yaml", GOOD, "Path traversal rejected"),
        ("/tmp/x.yaml", GOOD, "relative path"),
        ("a\\\\b.yaml", GOOD, "relative path"),
        ("yamly/agent.py", GOOD, "File type not allowed"),
        ("yamly/.hidden/a.yaml", GOOD, "bare name"),
        ("yamly/a.yaml", "tools:\n  - name: os.system\n", "Blocked code reference 'os.system'"),
        ("yamly/a.yaml", "tools: ['subprocess:run']\n", "Blocked code reference 'subprocess:run'"),
        ("yamly/a.yaml", "sub_agents:\n  - code: x.y\n", "Blocked code reference 'x.y'"),
        ("yamly/a.yaml", "before_agent_callbacks:\n  - name: os.getcwd\n", "Blocked code reference 'os.getcwd'"),
        ("yamly/a.yaml", "agent_class: other.Agent\n", "Blocked code reference"),
        ("yamly/a.yaml", "input_schema: {name: os.PathLike}\n", "Blocked code reference"),
        ("yamly/a.yaml", "tools:\n - name: FunctionTool\n   args: {func: os.system}\n", "Blocked code reference"),
        (
            "yamly/a.yaml",
            "tools:\n - name: McpToolset\n   args: {stdioServerParams: {command: sh}}\n",
            "starts a program",
        ),
        ("yamly/a.yaml", "x: [{command: sh}]\n", "starts a program"),
        ("yamly/a.yaml", "beforeAgentCallbacks: [{name: os.getcwd}]\n", "Blocked code reference"),
        ("yamly/a.yaml", "sub_agents: [{config_path: 'file:///x.yaml'}]\n", "leads out"),
        ("yamly/a.yaml", "tools: [{name: OpenApiToolset, args: {spec: /etc/x.json}}]\n", "leads out"),
        ("yamly/a.yaml", "sub_agents:\n  - config_path: ../../other.yaml\n", "leads out"),
        ("yamly/a.yaml", "instruction: {file: /etc/passwd}\n", "leads out"),
        ("yamly/a.yaml", "a: &x [1]\nb: *x\n", "has an alias"),
        ("yamly/a.yaml", "a: !!python/object/apply:os.system [ls]\n", "no YAML that can be read"),
        ("yamly/a.yaml", "a: !secret SECRET\n", "has the tag"),
        ("yamly/a.yaml", "a: !env [SECRET]\n", "has the tag"),
        ("yamly/a.yaml", "tools: [!env CODE]\n", "Blocked code reference"),
        ("yamly/a.yaml", "instruction: {file: !env NAME}\n", "leads out"),
        ("yamly/a.yaml", "edges: [[START, !env CODE]]\n", "Blocked code reference"),
        ("yamly/a.yaml", "edges: [[START, 'anyio:os.system']]\n", "Blocked code reference"),
        ("yamly/a.yaml", "edges: [[START, [{yes: x.y}]]]\n", "Blocked code reference"),
        ("yamly/a.yaml", "edges: [[START, ../other.yaml]]\n", "leads out"),
        ("yamly/a.yaml", "nodes: {a: {agent_class: FunctionNode, func_code: x.y}}\n", "Blocked code reference"),
        ("yamly/a.yaml", "nodes: {a: {agent_class: ToolNode, tool_code: x.y}}\n", "Blocked code reference"),
        ("yamly/a.yaml", "instruction: {name: x.y}\n", "Blocked code reference"),
        ("yamly/a.yaml", "app: {protocols: ['x:y']}\n", "Blocked code reference"),
        ("yamly/a.yaml", "app: {stores: 'sqlite:////tmp/x.db'}\n", "leads out"),
        ("yamly/a.yaml", "app: {plugins: [{name: RecordReplay, args: {path: ../x}}]}\n", "leads out"),
        ("yamly/a.yaml", "a: [" * 100 + "]" * 100, "nests deeper"),
        ("yamly/a.yaml", "a: [" + "1," * 30_000 + "]", "more than 20000 values"),
        ("yamly/a.yaml", "a: [", "no YAML"),
        ("yamly/a.yaml", b"a: \xff", "no YAML"),
        ("yamly/a.yaml", "a: '" + "x" * 1024 * 1024 + "'", "larger than"),
    ],
)
async def test_what_may_not_be_saved_is_400_and_nothing_is_written(tmp_path: Path, name: str, text: Any, says: str):
    async with evals_served(tmp_path) as client:
        response = await client.post(f"{EDITOR}/save", **form(("yamly/good.yaml", GOOD), (name, text)))
        assert response.status == 400, response.text
        assert says in response.json()["detail"]
    assert list(tmp_path.rglob("*.yaml")) == []


def test_every_key_of_agent_files_that_takes_code_is_looked_at():
    """The keys are those of the schema by which the files are read, so that a new one cannot be forgotten."""
    sections = [kind for kind in _below(Section) if kind is not CodeSection]
    keys = {
        field.name
        for kind in sections
        for field in msgspec.structs.fields(kind)
        if "CodeSection" in str(field.type) or "by code" in str(field.type)
    }
    assert {"func_code", "plugins", "header_provider", "state_schema"} <= keys
    for key in sorted(keys):
        with pytest.raises(BadRequest, match="Blocked code reference"):
            check_yaml("yamly", "a.yaml", f"{key}: {{name: os.system}}\n".encode())
        if key not in TEXT_KEYS and key.replace("_", "") not in TEXT_KEYS:
            with pytest.raises(BadRequest, match="Blocked code reference"):
                check_yaml("yamly", "a.yaml", f"{key}: os.system\n".encode())


def _below(kind: type[Section]) -> list[type[Section]]:
    return [inner for direct in kind.__subclasses__() for inner in (direct, *_below(direct))]


async def test_FR_218_what_a_file_says_is_saved_as_it_is_also_comments_and_the_environment(tmp_path: Path):
    text = (
        "# mine\nname: yamly\nmodel: {name: openai/gpt-5-mini, api_key: !env KEY}\n"
        "instruction: Say a.b and c:d.  # a text is no code\n"
        "tools:\n  - name: OpenApiToolset\n    args: {spec: api.yaml, headers: {x-key: !env OTHER}}\n"
        "app: {stores: 'sqlite:///data.db'}\n"
    )
    flow = (
        "agent_class: Workflow\nname: flow\nedges:\n- [START, yamly.tools.look, {yes: sub/a.yaml, default: refuse}]\n"
    )
    async with evals_served(tmp_path) as client:
        assert await save(client, ("root_agent.yaml", text), ("flow.yaml", flow)) is True
        assert await read(client) == text
        assert await read(client, file_path="flow.yaml") == flow


async def test_code_of_the_app_itself_and_built_ins_may_be_named(tmp_path: Path):
    text = "name: yamly\ntools:\n  - yamly.tools.search\n  - name: google_search\nsub_agents:\n  - config_path: sub/a.yaml\n"
    async with evals_served(tmp_path) as client:
        assert await save(client, ("yamly/root_agent.yaml", text)) is True


async def test_files_are_saved_to_the_byte(tmp_path: Path):
    text = "# one\r\nname: a\r\n\r\ninstruction: |\n  --xx is no boundary here\n\n"
    async with evals_served(tmp_path) as client:
        assert await save(client, ("root_agent.yaml", text), ("empty.yaml", "")) is True
    assert (tmp_path / "yamly" / "root_agent.yaml").read_bytes() == text.encode()
    assert (tmp_path / "yamly" / "empty.yaml").read_bytes() == b""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data; boundary=xx"),
        (b"--xx--\r\n", "multipart/form-data; boundary=xx"),
        (b"hello", "multipart/form-data"),
        (b"{}", "application/json"),
        (b"\x00" * 100, "multipart/form-data; boundary=\xff"),
        (b"--xx\r\n" * 2000 + b"--xx--", "multipart/form-data; boundary=xx"),
        (b"--xx\r\n" + b"a: b\r\n" * 2000 + b"\r\n1\r\n--xx--", "multipart/form-data; boundary=xx"),
        (
            b"--xx\r\n" + b"Content-Type: multipart/mixed; boundary=yy\r\n\r\n--yy\r\n" * 500,
            "multipart/form-data; boundary=xx",
        ),
    ],
)
async def test_a_form_that_is_none_is_400(tmp_path: Path, body: bytes, kind: str):
    async with evals_served(tmp_path) as client:
        response = await client.post(f"{EDITOR}/save", body=body, headers={"content-type": kind})
        assert response.status == 400, response.text


async def test_a_disk_that_says_no_is_false(tmp_path: Path):
    (tmp_path / "yamly").write_text("a file where the folder should be")
    async with evals_served(tmp_path) as client:
        assert await save(client, ("yamly/root_agent.yaml", GOOD)) is False


# ---- consent

CONSENT = "/config/telemetry"
ALLOW = {"X-ADK-Telemetry-Request": "true"}


async def test_consent_needs_the_header_that_no_other_page_can_send(tmp_path: Path):
    async with evals_served(tmp_path) as client:
        assert (await client.get(CONSENT)).json() == {"telemetry": False}
        assert (await client.post(CONSENT, json={"telemetry": True})).status == 400
        for body in ({"telemetry": "x"}, {"telemetry": None}, {}):
            assert (await client.post(CONSENT, json=body, headers=ALLOW)).status == 400
        for said in (True, False):
            assert (await client.post(CONSENT, json={"telemetry": said}, headers=ALLOW)).json() == {"telemetry": said}
            assert (await client.get(CONSENT)).json() == {"telemetry": said}


# ---- who may

CHANGES = [
    ("POST", f"{DEV}/eval-sets"),
    ("POST", f"{DEV}/eval_sets/s2"),
    ("DELETE", f"{DEV}/eval_sets/s1"),
    ("PUT", f"{DEV}/eval_sets/s1/evals/paris"),
    ("DELETE", f"{DEV}/eval-sets/s1/eval-cases/paris"),
    ("POST", f"{DEV}/eval_sets/s1/add_session"),
    ("POST", f"{DEV}/eval-sets/s1/run"),
    ("POST", "/apps/weather/eval_sets/s1/run_eval"),
    ("PUT", f"{DEV}/tests/a"),
    ("DELETE", f"{DEV}/tests/a"),
    ("POST", f"{DEV}/tests/run"),
    ("POST", f"{DEV}/tests/rebuild"),
    ("GET", f"{DEV}/builder"),
    ("POST", f"{DEV}/builder/save"),
    ("POST", f"{DEV}/builder/cancel"),
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "127.0.0.1"},
        {"origin": "https://evil.test"},
        {"host": "evil.test", "origin": "http://evil.test"},
    ],
    ids=["proxied", "another page", "rebound name"],
)
async def test_changes_are_for_programs_on_this_machine(
    tmp_path: Path, method: str, path: str, headers: dict[str, str]
):
    file = written(tmp_path / "weather", eval_set(PARIS))
    before = file.read_text()
    async with evals_served(tmp_path) as client:
        response = await client.request(method, path, headers=headers, **({} if method == "GET" else {"json": {}}))
        assert response.status == 403, response.text
        assert (await client.get(f"{DEV}/eval_sets", headers={"x-forwarded-for": "1.2.3.4"})).json() == ["s1"]
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["s1.evalset.json"] and file.read_text() == before


class Named:
    """Knows the caller by a header; only `root` administers."""

    challenge = ""

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        return Caller(user=credentials.values("x-user")[0])

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        if caller.user != user:
            raise Forbidden("no")

    async def use(self, caller: Caller, app: str) -> None: ...

    async def administer(self, caller: Caller, app: str) -> None:
        if caller.user != "root":
            raise Forbidden("not an administrator")


@asynccontextmanager
async def behind_auth(root: Path) -> AsyncGenerator[Client]:
    named = Named()
    guard = Guard.open().behind(Auth(named, named))
    async with connect(App(weather(), protocols=["rest", Evals(root=root)], guard=guard)) as client:
        yield client


async def test_with_identities_only_administrators_see_and_change_evaluations(tmp_path: Path):
    written(tmp_path / "weather", eval_set(PARIS))
    reads = ["eval-sets", "eval_sets", "eval_sets/s1", "eval_sets/s1/evals", "eval_results", "eval-results", "tests"]
    async with behind_auth(tmp_path) as client:
        for path in reads:
            assert (await client.get(f"{DEV}/{path}", headers={"x-user": "alice"})).status == 403
            assert (await client.get(f"{DEV}/{path}", headers={"x-user": "root"})).status == 200
        for method, path in CHANGES:
            response = await client.request(
                method, path, headers={"x-user": "alice"}, json={} if method != "GET" else None
            )
            assert response.status == 403 and response.json()["detail"] == "not an administrator", path
        assert (await client.get(f"{DEV}/metrics-info", headers={"x-user": "alice"})).status == 200
