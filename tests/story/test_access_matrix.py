"""Who gets through which door: every route and method of a server with all protocols, asked by nobody, with a bad
credential, by another user, by the owner, by somebody who may not use the app, and by an admin (spec rest 3.4, 11.3).

Made from the route tables, so a new route is covered as it is; `support.access` is told how to call it.
"""

import json
from dataclasses import replace
from typing import Any

import grpc.aio
import pytest

from polyport import App, FunctionAgent
from polyport.protocols.a2a.grpc_methods import METHODS
from polyport.protocols.a2a.operations import STREAMING
from polyport.protocols.host import Host
from polyport.wire import a2a_proto
from support.access import ABOUT, CANARY, HOOK, KEYED, PROTOCOLS, ROLES, Call, Missing, World, calls, world

NOBODY: dict[str, str] = {}
BAD = {"authorization": "Bearer pp_this-is-nobodys-key"}


def host() -> Host:
    async def silent(ctx: Any) -> None:
        return None

    return App(FunctionAgent(name="a", function=silent), protocols=PROTOCOLS).asgi


CALLS = list(calls(host().routes))
EACH = pytest.mark.parametrize("call", CALLS, ids=[c.name for c in CALLS])


@EACH
async def test_rest_76_78_81_84_a_route_is_its_owners_only(call: Call):
    async with world() as at:
        before = await at.belongings()
        for who in (NOBODY, BAD):
            for prefix in ("", "/api"):
                at.touched.clear()
                status, body, headers = await at.ask(call, who, prefix)
                if call.route.public:
                    assert status not in (401, 403), (status, body)
                    continue
                assert status == 401, (status, body)
                assert headers["www-authenticate"]
                assert not at.touched, "storage was touched before it was known who asks"
        if call.route.method == "GET" and not call.route.public:
            assert (await at.ask(call, NOBODY, method="HEAD"))[0] in ({401} if call.route.head else {405})
        at.touched.clear()
        status, body, _ = await at.ask(call, KEYED.headers("bob"))
        assert CANARY.encode() not in body and status < 500
        if "{user}" in call.route.pattern or call.route.admin:
            assert status == 403, (status, body)
        if status == 403:
            assert not at.touched, "storage was touched before it was known what the caller may do"
        if not call.route.public:
            assert await at.belongings() == before
        status, body, _ = await at.ask(call, KEYED.headers("alice"))
        works = status == 403 if call.route.admin else status < 303 or (status == 409 and b"already exists" in body)
        assert works, f"the example for {call.name} does not work: {status} {body!r}"
        assert not body.startswith(b'{"jsonrpc"') or b'"result"' in body, f"the example for {call.name} fails: {body!r}"


@EACH
async def test_rest_80_who_may_not_use_an_app_finds_nothing_of_it(call: Call):
    if call.route.public:
        return
    async with world(ROLES) as at:
        runs = at.agent.runs
        status, body, _ = await at.ask(call, KEYED.headers("carol"))
        assert CANARY.encode() not in body and ABOUT.encode() not in body
        if "{app}" in call.route.pattern or call.route.app or call.route.admin:
            assert status == 403, (status, body)
        assert not at.touched or status == 404, "storage was touched"
        assert at.agent.runs == runs, "the agent ran for somebody who may not use it"
        status, body, _ = await at.ask(call, KEYED.headers("root"))
        assert status not in (401, 403), (status, body)


def test_the_matrix_has_every_route():
    assert {(c.route.method, c.route.pattern) for c in CALLS} == {(r.method, r.pattern) for r in host().routes}
    open_ones = {r.pattern for r in host().routes if r.public}
    assert {p for p in open_ones if "/.well-known/" not in p} == {"/", "/health", "/ready", "/version"}


async def test_a_route_that_the_matrix_cannot_call_fails():
    route = next(c.route for c in CALLS if c.route.pattern == "/runs/{run}")

    with pytest.raises(Missing, match="POST /new/thing"):
        list(calls([replace(route, method="POST", pattern="/new/thing")]))
    async with world() as at:
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
async def test_rest_80_a_grpc_method_is_its_owners_only(path: str):
    async with world(grpc="127.0.0.1:0") as at:
        before = await at.belongings()
        for who in (NOBODY, BAD):
            at.touched.clear()
            assert (await call_grpc(at, path, who))[0] == "UNAUTHENTICATED"
            assert not at.touched
        status, body = await call_grpc(at, path, KEYED.headers("bob"))
        assert status in ("OK", "NOT_FOUND") and CANARY.encode() not in body
        assert await at.belongings() == before
        assert (await call_grpc(at, path, KEYED.headers("alice")))[0] == "OK"
    async with world(ROLES, grpc="127.0.0.1:0") as at:
        runs = at.agent.runs
        assert (await call_grpc(at, path, KEYED.headers("carol")))[0] == "PERMISSION_DENIED"
        assert not at.touched and at.agent.runs == runs
