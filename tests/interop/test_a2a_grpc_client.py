"""Our A2A client over gRPC: with our own server in both versions, with the official one, and with what does not behave."""

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import grpc
import grpc.aio
import msgspec
import pytest

from interop.a2a_peer_server import a2a_peer
from interop.mcp_servers.lab import listening
from polyport import App, LlmAgent, make_tool, tool
from polyport.agents.a2a_client import BINDINGS, A2AClient, A2AOptions
from polyport.agents.a2a_door import A2ALimits, Caller
from polyport.agents.remote import RemoteAgent
from polyport.data.content import Content, FunctionResponse, Part
from polyport.errors import (
    BadRequest,
    ConfigError,
    Forbidden,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.testing import ScriptedModel, call, chunks
from polyport.wire import a2a, a2a_proto
from polyport.wire.a2a_card import AgentCapabilities, AgentCard, AgentInterface
from polyport.wire.a2a_errors import (
    InvalidAgentResponse,
    InvalidParams,
    MethodNotFound,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from support.a2a_talk import Gate, short
from support.processes import Process

ONLY = {"GRPC": BINDINGS["GRPC"]}
VERSIONS = ["1.0", "0.3"]
each = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncGenerator[None]:
    """grpcio has one queue for all event loops of a process, and may take what is left of one that is closed into the next."""
    yield


def ticket() -> None:
    """Ask a human."""


def llm(*steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), **fields)


@asynccontextmanager
async def served(agent: Any, **options: Any) -> AsyncGenerator[str]:
    push = PushSettings(allow_http=True, allow_private=True)
    app = App(agent, protocols=["rest", A2a(grpc="127.0.0.1:0", push=push, **options)])
    async with listening(app.asgi) as url:
        yield url


@asynccontextmanager
async def connected(url: str, version: str = "1.0", app: str = "", **options: Any) -> AsyncGenerator[A2AClient]:
    """A client of the gRPC interface of a version."""
    looker = A2AClient(f"{url}/a2a/{app}/.well-known/agent-card.json" if app else url)
    found = await looker.card()
    await looker.aclose()
    listed = [i for i in found.supported_interfaces if (i.protocol_binding, i.protocol_version) == ("GRPC", version)]
    assert len(listed) == 1
    card = AgentCard(
        name=found.name, description="", version="1", supported_interfaces=listed, capabilities=found.capabilities
    )
    client = A2AClient(card, options=A2AOptions(**options))
    try:
        with anyio.fail_after(30):
            yield client
    finally:
        await client.aclose()


async def gather(payloads: Any) -> list[a2a.Payload]:
    async with aclosing(payloads):
        return [payload async for payload in payloads]


def target(url: str, **more: Any) -> AgentCard:
    interface = AgentInterface(url=url, protocol_binding="GRPC", protocol_version="1.0")
    streams = AgentCapabilities(streaming=True)
    return AgentCard(name="it", description="", version="1", supported_interfaces=[interface], capabilities=streams)


@each
async def test_grpc_client_every_operation(version: str):
    gate = Gate()
    agent = llm(chunks("a", "b"), call("wait"), tools=[gate.wait])
    config = CardConfig(extended=lambda call, card: card, extended_for_all=True)
    async with served(agent, card=config) as url, connected(url, version) as client:
        frames = await gather(client.stream("hi"))
        assert isinstance(frames[0], a2a.Task) and short(frames[-1]) == "completed"
        done = await client.get(frames[0].id, history_length=1)
        assert done.artifacts is not None and done.artifacts[0].parts[0].text == "ab"
        assert [m.text for m in done.history or ()] == ["hi"]
        assert (await client.extended_card()).name == "app"

        begun = await client.send("wait", wait="no")
        assert isinstance(begun, a2a.Task)
        await gate.begun.wait()
        followed: list[str] = []

        async def follow() -> None:
            async with aclosing(client.subscribe(begun.id)) as payloads:
                async for payload in payloads:
                    followed.append(short(payload))
                    seen.set()

        seen = anyio.Event()
        config_ = a2a.TaskPushNotificationConfig(task_id=begun.id, id="p/1", url="http://127.0.0.1:9/hook")
        assert (await client.create_push_config(config_)).id == "p/1"
        if version == "1.0":
            assert (await client.get_push_config(begun.id, "p/1")).url == config_.url
            await client.delete_push_config(begun.id, "p/1")
        assert len((await client.list_push_configs(begun.id)).configs) == (0 if version == "1.0" else 1)
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await seen.wait()
            assert short(await client.cancel(begun.id)) == "canceled"
        assert followed[0] == "working" and followed[-1] == "canceled"
        if version == "1.0":
            assert (await client.list()).total_size == 2
        else:
            with pytest.raises(UnsupportedOperation, match=r"0\.3, which has no ListTasks"):
                await client.list()


@each
async def test_grpc_client_errors_have_their_names(version: str):
    async with served(llm("one")) as url, connected(url, version) as client:
        with pytest.raises(TaskNotFound, match="no task 'nope'"):
            await client.get("nope")
        task = await client.send("hi")
        assert isinstance(task, a2a.Task)
        with pytest.raises(TaskNotCancelable):
            await client.cancel(task.id)
        (whole,) = await gather(client.subscribe(task.id))
        assert short(whole) == "completed", "what cannot be followed is looked at"
        with pytest.raises(InvalidParams, match="parts"):
            await client.send(a2a.Message(parts=[]))


@each
async def test_T096_T102_grpc_an_approval_of_a_remote_agent_is_given_here(version: str):
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    agent = llm(call("pay", {"amount": 5}), "It is paid.", tools=[pay])
    async with served(agent) as url, connected(url, version) as client:
        app = App(RemoteAgent(name="far", client=client))
        async with app:
            asked = await app.ask("pay 5", session="s")
            assert (asked.outcome.status, paid) == ("paused", [])
            ((id, name),) = [(c.id, c.name) for e in asked.events for c in e.calls if c.id in e.long_running_tool_ids]
            yes = Part(function_response=FunctionResponse(id=id, name=name, response={"confirmed": True}))
            reply = await app.ask(Content(role="user", parts=[yes]), session="s")
    assert (reply.text, paid) == ("It is paid.", [5])


async def test_T002_grpc_several_apps_are_told_apart_by_tenant():
    agents = [LlmAgent(name=name, model=ScriptedModel(f"I am {name}.")) for name in ("one", "two")]
    async with served(agents) as url:
        async with connected(url, app="two") as client:
            task = await client.send("who?")
            assert isinstance(task, a2a.Task) and task.artifacts is not None
            assert task.artifacts[0].parts[0].text == "I am two."
            same = A2AClient(f"{url}/a2a/two")
            assert (await same.get(task.id)).id == task.id, "the same task over HTTP"
            await same.aclose()
        async with connected(url, app="one") as client:
            with pytest.raises(TaskNotFound):
                await client.get(task.id)
            assert "one" in str(await client.send("who?"))
        card = A2AClient(f"{url}/a2a/two")
        listed = [i for i in (await card.card()).supported_interfaces if i.protocol_binding == "GRPC"]
        await card.aclose()
    assert [(i.tenant, i.protocol_version) for i in listed] == [("two", "1.0")], "0.3 has no tenants"


async def test_T002_grpc_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    certificate, key = self_signed(tmp_path)
    async with served(llm("hello"), grpc_tls=(certificate, key)) as url:
        async with connected(url) as client:
            with pytest.raises(Unavailable):
                await client.send("hi")  # a bare target on this machine is taken for a plain one
            port = (await client.card()).supported_interfaces[0].url.rpartition(":")[2]
        client = A2AClient(target(f"https://localhost:{port}"))
        with pytest.raises(Unavailable):
            await client.send("hi")  # nobody vouches for the certificate
        await client.aclose()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = A2AClient(target(f"https://localhost:{port}"))
        assert isinstance(await client.send("hi"), a2a.Task)
        await client.aclose()


async def test_a2a_grpc_tls_needs_files(tmp_path: Path):
    app = App(llm(), protocols=[A2a(grpc="127.0.0.1:0", grpc_tls=(tmp_path / "no.pem", tmp_path / "no.key"))])
    with pytest.raises(ConfigError, match=r"grpc_tls: cannot read .*no\.key"):
        async with app:
            pass


def self_signed(folder: Path) -> tuple[Path, Path]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(plain)
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    return folder / "cert.pem", folder / "key.pem"


# ---- who calls


async def test_FR_177_FR_184_grpc_credentials_go_where_they_may_and_are_refreshed_once():
    async with a2a_peer(("GRPC", "1.0")) as peer:
        client = A2AClient(peer.url, options=A2AOptions(trusted_hosts=("127.0.0.1",)))
        await client.card()
        peer.token = "new"
        tokens = ["old", "new"]
        asked: list[str] = []
        caller = Caller(provider=lambda: {"Authorization": f"Bearer {tokens[0]}"}, refresh=lambda _: tokens.pop(0))
        assert isinstance(await client.send("hi", caller=caller), a2a.Task)
        tokens[:] = ["old", "new"]
        frames = await gather(client.stream("chunks", caller=caller))
        assert short(frames[-1]) == "completed"
        tokens[:] = ["old", "older", "oldest"]
        before = len(peer.requests)
        with pytest.raises(Unauthenticated, match="does not accept"):
            await client.send("hi", caller=caller)
        asked = [headers["authorization"] for _, _, headers in peer.requests[before:]]
        assert asked == ["Bearer old", "Bearer older"]
        await client.aclose()

        careful = A2AClient(peer.url)
        peer.token = ""
        await careful.card()
        peer.token = "new"
        before = len(peer.requests)
        with pytest.raises(Unauthenticated, match="trusted_hosts"):
            await careful.send("hi", caller=Caller(headers={"authorization": "Bearer new"}))
        assert not any("authorization" in headers for _, _, headers in peer.requests[before:])
        await careful.aclose()


@pytest.mark.parametrize("header", [{"grpc-timeout": "1n"}, {"x-bin": "x"}, {"a b": "x"}, {"x": "ü"}, {"x": "a\nb"}])
async def test_grpc_client_headers_that_cannot_be_sent(header: dict[str, str]):
    client = A2AClient(target("127.0.0.1:9"))
    with pytest.raises(BadRequest, match="cannot be sent over gRPC"):
        await client.get("t", caller=Caller(headers=header))
    await client.aclose()


# ---- where it goes


@pytest.mark.parametrize("url", ["unix:///run/x", "dns://8.8.8.8/example.com", "xds:///x", "ftp://x:1", "", "a b"])
async def test_grpc_client_targets_that_are_not_called(url: str):
    client = A2AClient(target(url))
    with pytest.raises((Unavailable, InvalidAgentResponse)):
        await client.get("t")
    await client.aclose()


async def test_T063_grpc_addresses_inside_are_not_called_for_a_card_from_outside():
    client = A2AClient(target("http://localhost:9"), options=A2AOptions(allow_private=False))
    with pytest.raises(Forbidden, match="allow_private"):
        await client.get("t")
    await client.aclose()


async def test_grpc_client_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = A2AClient(target(f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(Unavailable, match="could not be reached"):
            await client.get("t")
        await client.aclose()


async def test_grpc_client_without_its_packages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    only = target("127.0.0.1:9")
    with pytest.raises(ConfigError, match="pip install grpcio protobuf"):
        await A2AClient(only).get("t")
    http = AgentInterface(url="http://127.0.0.1:9", protocol_binding="HTTP+JSON", protocol_version="1.0")
    both = AgentCard(name="it", description="", version="1", supported_interfaces=[*only.supported_interfaces, http])
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9/tasks/t"):
        async with aclosing(A2AClient(both)) as client:
            await client.get("t")


# ---- servers that do not behave


class Odd(grpc.GenericRpcHandler):
    """Answers all calls by a function of the context; what it gives are the frames, or the first is the answer."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method.endswith(("SendStreamingMessage", "SubscribeToTask")):
            return grpc.unary_stream_rpc_method_handler(self._all)
        return grpc.unary_unary_rpc_method_handler(self._one)

    async def _all(self, request: bytes, context: Any) -> Any:
        async for frame in self.act(context):
            yield frame

    async def _one(self, request: bytes, context: Any) -> bytes:
        async for frame in self.act(context):
            return frame
        return b""


@asynccontextmanager
async def odd(act: Any, **limits: Any) -> AsyncGenerator[A2AClient]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Odd(act),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = A2AClient(target(f"127.0.0.1:{port}"), options=A2AOptions(limits=A2ALimits(resubscribes=1, **limits)))
    try:
        yield client
    finally:
        await client.aclose()
        await server.stop(None)


def frame(**payload: Any) -> bytes:
    return a2a_proto.from_json("lf.a2a.v1.StreamResponse", msgspec.json.encode(payload))


def aborts(code: grpc.StatusCode, text: str = "why", **trailers: bytes) -> Any:
    async def act(context: Any) -> Any:
        metadata = tuple((k.replace("_", "-"), v) for k, v in trailers.items())
        await context.abort(code, text, trailing_metadata=metadata)
        yield b""

    return act


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (aborts(grpc.StatusCode.UNIMPLEMENTED), MethodNotFound),
        (aborts(grpc.StatusCode.UNAVAILABLE), Unavailable),
        (aborts(grpc.StatusCode.PERMISSION_DENIED), Forbidden),
        (aborts(grpc.StatusCode.NOT_FOUND, "TaskNotFoundError: no such task"), TaskNotFound),
        (aborts(grpc.StatusCode.INTERNAL, grpc_status_details_bin=b"\xff\xff"), Exception),
    ],
)
async def test_grpc_client_statuses(act: Any, kind: type[Exception]):
    async with odd(act) as client:
        with pytest.raises(kind, match=r"why|no such task"):
            await client.get("t")


async def test_grpc_client_answers_that_are_none_or_too_large_or_late():
    async def garbage(context: Any) -> Any:
        yield b"\xff\xff\xff"

    async with odd(garbage) as client:
        with pytest.raises(InvalidAgentResponse, match="not A2A"):
            await client.get("t")
        with pytest.raises(InvalidAgentResponse, match="not A2A"):
            await gather(client.stream("hi"))

    async def large(context: Any) -> Any:
        for n in range(3):
            yield frame(
                task={
                    "id": "t",
                    "contextId": "c",
                    "status": {"state": "TASK_STATE_WORKING"},
                    "history": [{"messageId": str(n), "role": "ROLE_USER", "parts": [{"text": "x" * 900}]}],
                }
            )

    async with odd(large, answer_bytes=500) as client:
        with pytest.raises(TooLarge):
            await client.get("t")
    async with odd(large, stream_bytes=2000) as client:
        with pytest.raises(TooLarge, match="larger than 2000 bytes"):
            await gather(client.stream("hi"))

    async def never(context: Any) -> Any:
        await anyio.sleep_forever()
        yield b""

    async with odd(never, call_timeout_s=0.05, timeout_s=0.05) as client:
        with pytest.raises(TimedOut, match=r"within 0\.05 s"):
            await client.get("t")
        with pytest.raises(TimedOut):
            await gather(client.stream("hi"))


async def test_FR_178_grpc_a_silent_stream_is_taken_up_again():
    begun: list[str] = []

    async def act(context: Any) -> Any:
        begun.append("stream")
        task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        if len(begun) > 1:
            task["status"] = {"state": "TASK_STATE_COMPLETED"}
        yield frame(task=task)
        if len(begun) == 1:
            await anyio.sleep_forever()

    async with odd(act, idle_timeout_s=0.05) as client:
        frames = await gather(client.stream("hi"))
    assert short(frames[-1]) == "completed" and len(begun) == 2


async def test_grpc_client_a_long_running_call_over_there():
    agent = llm(call("ticket", {}, "c1"), "thanks", tools=[make_tool(ticket, long_running=True)])
    async with served(agent) as url, connected(url) as client:
        asked = await client.send("go")
        assert isinstance(asked, a2a.Task) and short(asked) == "input_required"
        part = a2a.Part(
            data={"id": "c1", "name": "ticket", "response": {"ok": True}}, metadata={"adk_type": "function_response"}
        )
        done = await client.send(a2a.Message(parts=[part], task_id=asked.id))
        assert isinstance(done, a2a.Task) and short(done) == "completed"


async def test_the_command_line_speaks_grpc():
    async with served(llm("hello there")) as url:

        def run() -> tuple[int, str, str]:
            with Process("a2a", "send", url, "hi", "--binding", "GRPC") as process:
                process.stdin.close()
                return process.ended(), process.out.text, process.err.text

        code, out, err = await anyio.to_thread.run_sync(run)
    assert (code, out.strip()) == (0, "hello there"), err
