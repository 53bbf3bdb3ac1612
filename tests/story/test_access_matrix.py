"""Who gets through which door: every route and method of a server with all protocols, asked by nobody, with a bad
credential, by another user, by the owner, by somebody who may not use the app, and by an admin (spec rest 3.4, 11.3).

Made from the route tables, so a new route is covered as it is; `support.access` is told how to call it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from polyport import App, FunctionAgent
from polyport.protocols.a2a.grpc_methods import METHODS
from polyport.protocols.a2a.operations import STREAMING
from polyport.protocols.host import Host
from polyport.wire import a2a_proto
from support.access import ABOUT, CANARY, HOOK, KEYED, OF_ADMINS, ROLES, Call, Missing, World, calls, protocols, world

NOBODY: dict[str, str] = {}
BAD = {"authorization": "Bearer pp_this-is-nobodys-key"}


def host() -> Host:
    async def silent(ctx: Any) -> None:
        return None

    return App(FunctionAgent(name="a", function=silent), protocols=protocols(Path())).asgi


CALLS = list(calls(host().routes))
CLOSED = [call for call in CALLS if not call.route.public]
OF_USERS = [c for c in CALLS if not c.route.admin and not any(part in c.route.pattern for part in OF_ADMINS)]


async def test_rest_76_without_a_good_credential_no_route_but_the_public_ones_answers(tmp_path: Path):
    async with world(tmp_path) as at:
        before = await at.belongings()
        at.touched.clear()
        for call in CLOSED:
            for who in (NOBODY, BAD):
                for prefix in ("", "/api"):
                    status, body, headers = await at.ask(call, who, prefix)
                    assert status == 401, (call.name, status, body)
                    assert headers["www-authenticate"], call.name
            if call.route.method == "GET":
                status, _, _ = await at.ask(call, NOBODY, method="HEAD")
                assert status == (401 if call.route.head else 405), call.name
            assert not at.touched, f"{call.name}: storage was touched before it was known who asks"
        assert await at.belongings() == before
        for call in CALLS:
            if call.route.public:
                status, body, _ = await at.ask(call, NOBODY)
                assert status not in (401, 403) and CANARY.encode() not in body, (call.name, status, body)


async def test_rest_80_who_may_not_use_an_app_finds_nothing_of_it(tmp_path: Path):
    async with world(tmp_path, ROLES) as at:
        before = await at.belongings()
        runs = at.agent.runs
        for call in CLOSED:
            at.touched.clear()
            status, body, _ = await at.ask(call, KEYED.headers("carol"))
            assert CANARY.encode() not in body and ABOUT.encode() not in body, (call.name, body)
            if "{app}" in call.route.pattern or call.route.app or call.route.admin:
                assert status == 403, (call.name, status, body)
            assert not at.touched or status == 404, f"{call.name}: storage was touched"
        assert at.agent.runs == runs, "the agent ran for somebody who may not use it"
        assert await at.belongings() == before


async def test_rest_80_what_belongs_to_no_user_is_for_admins(tmp_path: Path):
    async with world(tmp_path) as at:
        before = await at.belongings()
        theirs = [call for call in CALLS if call not in OF_USERS]
        for call in theirs:
            at.touched.clear()
            for user in ("bob", "alice"):
                status, body, _ = await at.ask(call, KEYED.headers(user))
                assert status == 403, (call.name, user, status, body)
            assert not at.touched, f"{call.name}: storage was touched"
        assert await at.belongings() == before
        for call in theirs:
            status, body, _ = await at.ask(call, KEYED.headers("root"))
            assert status not in (401, 403, 405), (call.name, status, body)


@pytest.mark.parametrize("call", OF_USERS, ids=[c.name for c in OF_USERS])
async def test_rest_78_81_84_a_route_is_its_owners_only(call: Call, tmp_path: Path):
    async with world(tmp_path) as at:
        before = await at.belongings()
        at.touched.clear()
        status, body, _ = await at.ask(call, KEYED.headers("bob"))
        assert CANARY.encode() not in body and status < 500
        if "{user}" in call.route.pattern:
            assert status == 403, (status, body)
        if status == 403:
            assert not at.touched, "storage was touched before it was known what the caller may do"
        assert await at.belongings() == before
        status, body, _ = await at.ask(call, KEYED.headers("alice"))
        works = status < 303 or (status == 409 and b"already exists" in body)
        assert works, f"the example for {call.name} does not work: {status} {body!r}"
        assert not body.startswith(b'{"jsonrpc"') or b'"result"' in body, f"the example for {call.name} fails: {body!r}"
        status, body, _ = await at.ask(call, KEYED.headers("root"))
        assert status not in (401, 403), (status, body)


def test_the_matrix_has_every_route():
    assert {(c.route.method, c.route.pattern) for c in CALLS} == {(r.method, r.pattern) for r in host().routes}
    open_ones = {r.pattern for r in host().routes if r.public}
    assert {p for p in open_ones if "/.well-known/" not in p} == {"/", "/health", "/ready", "/version"}


async def test_a_route_that_the_matrix_cannot_call_fails(tmp_path: Path):
    route = next(c.route for c in CALLS if c.route.pattern == "/runs/{run}")

    with pytest.raises(Missing, match="POST /new/thing"):
        list(calls([replace(route, method="POST", pattern="/new/thing")]))
    async with world(tmp_path) as at:
        with pytest.raises(Missing, match="stranger"):
            await at.ask(Call(replace(route, pattern="/x/{stranger}")), NOBODY)


# ---- gRPC

TASK, CONFIG = {"id": "$task"}, {"taskId": "$task", "id": "p"}
OLD_TASK, OLD_CONFIG = {"name": "tasks/$task"}, {"name": "tasks/$task/pushNotificationConfigs/p"}
NEW_CONFIG = {
    "parent": "tasks/$task",
    "configId": "new",
    "config": {"pushNotificationConfig": {"id": "new", "url": HOOK}},
}
SAY = {"messageId": "new", "role": "ROLE_USER"}
MESSAGES: dict[str, dict[str, Any]] = {
    "lf.a2a.v1 SendMessage": {"message": {**SAY, "parts": [{"text": "hi"}]}},
    "lf.a2a.v1 SendStreamingMessage": {"message": {**SAY, "parts": [{"text": "hi"}]}},
    "lf.a2a.v1 GetTask": TASK,
    "lf.a2a.v1 ListTasks": {},
    "lf.a2a.v1 CancelTask": TASK,
    "lf.a2a.v1 SubscribeToTask": TASK,
    "lf.a2a.v1 CreateTaskPushNotificationConfig": {"taskId": "$task", "id": "new", "url": HOOK},
    "lf.a2a.v1 GetTaskPushNotificationConfig": CONFIG,
    "lf.a2a.v1 ListTaskPushNotificationConfigs": {"taskId": "$task"},
    "lf.a2a.v1 DeleteTaskPushNotificationConfig": CONFIG,
    "lf.a2a.v1 GetExtendedAgentCard": {},
    "a2a.v1 SendMessage": {"message": {**SAY, "content": [{"text": "hi"}]}},
    "a2a.v1 SendStreamingMessage": {"message": {**SAY, "content": [{"text": "hi"}]}},
    "a2a.v1 GetTask": OLD_TASK,
    "a2a.v1 CancelTask": OLD_TASK,
    "a2a.v1 TaskSubscription": OLD_TASK,
    "a2a.v1 CreateTaskPushNotificationConfig": NEW_CONFIG,
    "a2a.v1 GetTaskPushNotificationConfig": OLD_CONFIG,
    "a2a.v1 ListTaskPushNotificationConfig": {"parent": "tasks/$task"},
    "a2a.v1 DeleteTaskPushNotificationConfig": OLD_CONFIG,
    "a2a.v1 GetAgentCard": {},
}


async def call_grpc(at: World, path: str, headers: dict[str, str]) -> tuple[str, bytes]:
    """The status of a call, and the bytes of its answers; of a subscription the first is enough."""
    method = METHODS[path]
    text = json.dumps(MESSAGES[f"{method.package} {path.rpartition('/')[2]}"]).replace("$task", at.params["task"])
    wire = a2a_proto.from_json(f"{method.package}.{method.takes}", text)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{at.grpc.port}") as channel:
        streams = method.operation in STREAMING
        made: Any = (channel.unary_stream if streams else channel.unary_unary)(path)
        call = made(wire, metadata=tuple(headers.items()), timeout=20)
        try:
            if not streams:
                return "OK", await call
            found = b""
            async for frame in call:
                found += frame
                if method.operation == "SubscribeToTask":
                    break
            return "OK", found
        except grpc.aio.AioRpcError as error:
            return error.code().name, (error.details() or "").encode()
        finally:
            call.cancel()


@pytest.mark.parametrize("path", METHODS)
async def test_rest_80_a_grpc_method_is_its_owners_only(path: str, tmp_path: Path):
    async with world(tmp_path, grpc="127.0.0.1:0") as at:
        before = await at.belongings()
        for who in (NOBODY, BAD):
            at.touched.clear()
            assert (await call_grpc(at, path, who))[0] == "UNAUTHENTICATED"
            assert not at.touched
        status, body = await call_grpc(at, path, KEYED.headers("bob"))
        assert status in ("OK", "NOT_FOUND") and CANARY.encode() not in body
        assert await at.belongings() == before
        assert (await call_grpc(at, path, KEYED.headers("alice")))[0] == "OK"
    async with world(tmp_path, ROLES, grpc="127.0.0.1:0") as at:
        runs = at.agent.runs
        assert (await call_grpc(at, path, KEYED.headers("carol")))[0] == "PERMISSION_DENIED"
        assert not at.touched and at.agent.runs == runs
