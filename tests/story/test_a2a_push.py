"""Push notifications: what is delivered, in which order, to whom, and what is refused (spec a2a 1.10)."""

import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import LlmAgent
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.ports.tasks import TaskScope
from polyport.protocols.a2a.push import PushOutbox
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.protocols.a2a.settings import A2aSettings
from polyport.testing import ScriptedModel, call, chunks
from support.a2a_hook import Hook, hooked
from support.a2a_talk import Gate
from support.a2a_wires import BINDINGS, Failed, Said, Wire, echoing, kinds, message, state, wired

bindings = pytest.mark.parametrize("binding", BINDINGS)
BEARER = {"scheme": "Bearer", "credentials": "tok-1"}


def local(**more: Any) -> PushSettings:
    return PushSettings(allow_private=True, allow_http=True, backoff_s=0.001, **more)


def outbox(wire: Wire) -> PushOutbox:
    found = wire.server.push
    assert isinstance(found, PushOutbox)
    return found


async def refused(wire: Wire, operation: str, params: dict[str, Any], said: Said | None = None) -> Failed:
    with pytest.raises(Failed) as caught:
        await wire.call(operation, params, said or Said())
    return caught.value


async def ordered(wire: Wire, hook: Hook, **config: Any) -> dict[str, Any]:
    """A task of an agent with a configuration, ended."""
    inline = {"taskPushNotificationConfig": {"url": hook.url, **config}}
    return (await wire.send(configuration=inline))["task"]


@bindings
async def test_T057_T058_FR_190_what_is_delivered(binding: str):
    async with hooked() as hook, wired(binding, echoing(), push=local()) as wire:
        task = await ordered(wire, hook, token="tok-2", authentication=BEARER)
        assert state(task) == "completed"
        await hook.until(4)
    assert kinds(hook.bodies) == ["task submitted", "status working", "artifact you said: hi", "status completed"]
    for path, headers, body in hook.got:
        assert path == "/hook"
        assert headers["content-type"] == "application/a2a+json"
        assert headers["authorization"] == "Bearer tok-1"
        assert headers["a2a-notification-token"] == headers["x-a2a-notification-token"] == "tok-2"
        ((_, value),) = body.items()
        assert (value.get("taskId") or value["id"]) == task["id"]


@bindings
async def test_T057_a_config_made_later_tells_what_follows(binding: str):
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done"), tools=[gate.wait])
    async with hooked() as hook, wired(binding, agent, push=local()) as wire:
        task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        await gate.begun.wait()
        await wire.call("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": hook.url})
        gate.go.set()
        await hook.until(3)
    assert kinds(hook.bodies)[-2:] == ["artifact done", "status completed"]
    assert not {"authorization", "a2a-notification-token", "x-a2a-notification-token"} & set(hook.got[0][1])


async def test_FR_190_each_receiver_has_its_own_credentials():
    async with hooked() as one, hooked() as two, wired("rest", echoing(), push=local()) as wire:
        agent_task = await ordered(wire, one, authentication=BEARER)
        gone = await ordered(wire, two, authentication={"scheme": "Basic", "credentials": "dTpw"})
        assert agent_task["id"] == gone["id"]  # the same message: it made one task, and the first configuration
        await one.until(4)
        other = {"url": two.url, "authentication": {"scheme": "Basic", "credentials": "dTpw"}}
        body = {"message": message(messageId="m2"), "configuration": {"taskPushNotificationConfig": other}}
        await wire.call("SendMessage", body)
        await two.until(4)
    assert {headers["authorization"] for _, headers, _ in one.got} == {"Bearer tok-1"}
    assert {headers["authorization"] for _, headers, _ in two.got} == {"Basic dTpw"}


@bindings
async def test_T059_T060_configurations(binding: str):
    async with wired(binding, echoing(), push=local(configs_per_task=4)) as wire:
        task_id = (await wire.send())["task"]["id"]
        made: list[Any] = []
        for n in range(3):
            config = {"taskId": task_id, "url": f"http://127.0.0.1:9/{n}"}
            made.append(await wire.call("CreateTaskPushNotificationConfig", config))
        assert len({config["id"] for config in made}) == 3
        named = {"taskId": task_id, "id": made[1]["id"]}
        assert await wire.call("GetTaskPushNotificationConfig", named) == made[1]
        listed = await wire.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
        assert listed["configs"] == made
        first = await wire.call("ListTaskPushNotificationConfigs", {"taskId": task_id, "pageSize": 2})
        assert first["configs"] == made[:2]
        page = {"taskId": task_id, "pageSize": 2, "pageToken": first["nextPageToken"]}
        last = await wire.call("ListTaskPushNotificationConfigs", page)
        assert last["configs"] == made[2:] and not last.get("nextPageToken")
        page["pageToken"] = "x"
        assert (await refused(wire, "ListTaskPushNotificationConfigs", page)).fields == ["pageToken"]
        # The same id again replaces.
        changed = {"taskId": task_id, "id": made[0]["id"], "url": "http://127.0.0.1:9/else"}
        await wire.call("CreateTaskPushNotificationConfig", changed)
        assert len((await wire.call("ListTaskPushNotificationConfigs", {"taskId": task_id}))["configs"]) == 3
        for _ in range(2):
            assert await wire.call("DeleteTaskPushNotificationConfig", named) == {}
        assert (await refused(wire, "GetTaskPushNotificationConfig", named)).reason == "TASK_NOT_FOUND"
        missing = await refused(wire, "ListTaskPushNotificationConfigs", {"taskId": "nope"})
        assert missing.reason == "TASK_NOT_FOUND"
        for n in range(2):
            await wire.call("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": f"http://127.0.0.1:9/{n}"})
        over = await refused(
            wire, "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": "http://127.0.0.1:9/"}
        )
        assert over.reason == "LIMIT_EXCEEDED"


async def test_a2a_push_secrets_are_for_who_gave_them():
    async with wired("rest", echoing(), push=local()) as wire:
        secret = {"url": "http://127.0.0.1:9/", "id": "p", "token": "tok-2", "authentication": BEARER}
        for said in (Said(caller="ann"), Said()):
            task_id = (await wire.send(said=said))["task"]["id"]
            await wire.call("CreateTaskPushNotificationConfig", {"taskId": task_id, **secret}, said)
            named = {"taskId": task_id, "id": "p"}
            found = await wire.call("GetTaskPushNotificationConfig", named, said)
            listed = (await wire.call("ListTaskPushNotificationConfigs", {"taskId": task_id}, said))["configs"]
            assert listed == [found]
            # Callers without a name cannot be told apart, so none of them is shown what one of them gave.
            shown = (
                {"token": "tok-2", "authentication": BEARER}
                if said.caller
                else {"authentication": {"scheme": "Bearer"}}
            )
            assert {k: v for k, v in found.items() if k in ("token", "authentication")} == shown
            for operation in ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
                assert (await refused(wire, operation, named, Said(caller="eve"))).reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize("lasting", [True, False])
async def test_T061_a_receiver_that_hangs_is_not_felt(lasting: bool, tmp_path: Path):
    """The stream ends, with all of its frames, while the receiver has not answered the first notification."""
    stores = f"sqlite:///{tmp_path}/data.db" if lasting else None
    async with hooked() as hook, wired("rest", echoing(), push=local(drain_s=0.0), stores=stores) as wire:
        hook.open = anyio.Event()
        params = {"message": message(), "configuration": {"taskPushNotificationConfig": {"url": hook.url}}}
        with anyio.fail_after(5):
            frames = await wire.stream("SendStreamingMessage", params)
        assert kinds(frames)[-1] == "status completed"
        await hook.until(1)
        assert len(hook.got) == 1  # the others wait behind it
        hook.open.set()
        await hook.until(4)


async def test_T061_receivers_that_hang_take_no_room_from_those_that_are_well():
    async with hooked() as sick, hooked() as hook, wired("rest", echoing(), push=local(at_once=1, drain_s=0.0)) as wire:
        sick.answers = [500, None]
        await ordered(wire, sick)
        await sick.until(2)  # it was tried again, and hangs
        await wire.send(messageId="m2", configuration={"taskPushNotificationConfig": {"url": hook.url}})
        with anyio.fail_after(5):
            await hook.until(4)
        sick.late.set()


@pytest.mark.parametrize("failure", [500, 503, 429, (503, [(b"retry-after", b"0")]), 408])
async def test_T062_FR_189_tried_again_and_in_order(failure: Any):
    agent = LlmAgent(name="app", model=ScriptedModel(chunks("a", "b", "c")))
    async with hooked() as hook, wired("rest", agent, push=local()) as wire:
        hook.answers = [failure, failure, 200, failure]
        await ordered(wire, hook)
        await hook.until(4 + 3)
    first, second = hook.bodies[0], hook.bodies[3]
    assert hook.bodies[:3] == [first] * 3
    assert hook.bodies[3:5] == [second] * 2
    assert kinds([first, second, *hook.bodies[5:]]) == [
        "task submitted",
        "status working",
        "artifact abc",
        "status completed",
    ]
    assert not outbox(wire).dead_letters


@pytest.mark.parametrize(
    ("failure", "tries", "reason"),
    [
        (500, 3, "answered 500 (3 attempts)"),
        (404, 1, "answered 404"),
        ((302, [(b"location", b"/else")]), 3, "redirects a POST"),
    ],
)
async def test_T062_what_cannot_be_delivered_is_kept_for_the_operator(
    failure: Any, tries: int, reason: str, caplog: pytest.LogCaptureFixture
):
    async with hooked() as hook, wired("rest", echoing(), push=local(attempts=3)) as wire:
        hook.answers = [failure] * 3
        task = await ordered(wire, hook, token="tok-2", authentication=BEARER)
        assert state(task) == "completed"
        await hook.until(tries + 3)
    letter = outbox(wire).dead_letters[0]
    assert (letter.task_id, letter.url) == (task["id"], hook.url)
    assert reason in letter.reason
    assert b"TASK_STATE_SUBMITTED" in letter.body
    assert "given up" in caplog.text
    assert "tok-" not in caplog.text and "tok-" not in str(letter)


async def test_a2a_push_what_waits_at_the_end_is_said(caplog: pytest.LogCaptureFixture):
    async with hooked() as hook:
        async with wired("rest", echoing(), push=local(drain_s=0.001), limits=Limits(shutdown_s=1.0)) as wire:
            hook.open = anyio.Event()
            await ordered(wire, hook)
            await hook.until(1)
        hook.open.set()
    assert [letter.reason for letter in outbox(wire).dead_letters] == ["the server stopped"] * 4
    assert "the server stopped" in caplog.text


async def test_a2a_push_a_receiver_that_is_too_slow_loses_the_oldest():
    async with hooked() as hook, wired("rest", echoing(), push=local(waiting=1)) as wire:
        hook.open = anyio.Event()
        await ordered(wire, hook)
        hook.open.set()
        await hook.until(2)
    assert kinds(hook.bodies)[-1] == "status completed"
    assert "waiting" in outbox(wire).dead_letters[0].reason
    assert len(outbox(wire).dead_letters) + len(hook.got) == 4


FORBIDDEN = [
    "https://169.254.169.254/latest/meta-data",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://10.1.2.3/",
    "https://192.168.0.1/",
    "https://172.16.9.9/",
    "https://0.0.0.0/",
    "https://localhost/",
    "https://inside.test/",
    "http://outside.test/",
    "ftp://outside.test/",
    "https://user:secret@outside.test/",
    "https://",
    "/hook",
    "https://outside.test/\r\nX-Injected: 1",
    "https://outside.test/" + "x" * 2048,
]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The names that there are, instead of those of the machine's network; what is no name is left to it."""
    known = {"inside.test": "10.0.0.7", "outside.test": "93.184.216.34"}
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        return real(known.get(host, host), port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_T063_where_nothing_is_sent(url: str, names: dict[str, str]):
    async with wired("jsonrpc", echoing(), push=PushSettings()) as wire:
        task_id = (await wire.send())["task"]["id"]
        error = await refused(wire, "CreateTaskPushNotificationConfig", {"taskId": task_id, "url": url})
        assert (error.code, error.fields) == (-32602, ["url"])
        params = {"message": message(messageId="m2"), "configuration": {"taskPushNotificationConfig": {"url": url}}}
        assert (await refused(wire, "SendMessage", params)).fields == ["url"]
        assert (await wire.call("ListTasks", {}))["totalSize"] == 1
        await wire.call("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": "https://outside.test/x"})


async def test_T063_a_name_that_moves_inside_is_not_followed(names: dict[str, str]):
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done"), tools=[gate.wait])
    async with wired("jsonrpc", agent, push=PushSettings()) as wire:
        task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        await gate.begun.wait()
        config = {"taskId": task["id"], "url": "https://outside.test/hook"}
        await wire.call("CreateTaskPushNotificationConfig", config)
        names["outside.test"] = "127.0.0.1"
        gate.go.set()
        with anyio.fail_after(20):
            while len(outbox(wire).dead_letters) < 2:
                await anyio.lowlevel.checkpoint()
    assert "may not be called" in outbox(wire).dead_letters[0].reason


async def test_T063_redirects_to_another_host_are_not_followed():
    async with hooked() as hook, hooked() as inside, wired("rest", echoing(), push=local(attempts=1)) as wire:
        hook.answers = [(307, [(b"location", inside.url.encode())])] * 4
        await ordered(wire, hook)
        await hook.until(4)
    assert not inside.got
    assert "redirects to another host" in outbox(wire).dead_letters[0].reason


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("token", {"token": "a\r\nX: 1"}),
        ("authentication.credentials", {"authentication": {"scheme": "Bearer", "credentials": "a\nb"}}),
        ("authentication.scheme", {"authentication": {"scheme": "Béarer"}}),
    ],
)
async def test_a2a_push_secrets_that_are_no_headers(field: str, config: dict[str, Any]):
    async with wired("rest", echoing(), push=local()) as wire:
        task_id = (await wire.send())["task"]["id"]
        params = {"taskId": task_id, "url": "http://127.0.0.1:9/", **config}
        assert (await refused(wire, "CreateTaskPushNotificationConfig", params)).fields == [field]


@bindings
async def test_T064_FR_187_no_push_without_the_capability(binding: str):
    async with wired(binding, echoing()) as wire:
        task_id = (await wire.send())["task"]["id"]
        config = {"taskId": task_id, "url": "https://outside.test/", "id": "p"}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("CreateTaskPushNotificationConfig", config),
            ("GetTaskPushNotificationConfig", {"taskId": task_id, "id": "p"}),
            ("ListTaskPushNotificationConfigs", {"taskId": task_id}),
            ("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": "p"}),
            (
                "SendMessage",
                {"message": message(messageId="m2"), "configuration": {"taskPushNotificationConfig": config}},
            ),
        ]
        for operation, params in calls:
            assert (await refused(wire, operation, params)).reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        assert (await wire.client.get("/.well-known/agent-card.json")).json()["capabilities"][
            "pushNotifications"
        ] is False
    async with wired(binding, echoing(), push=local()) as wire:
        assert (await wire.client.get("/.well-known/agent-card.json")).json()["capabilities"][
            "pushNotifications"
        ] is True


async def test_T065_configurations_go_with_their_tasks():
    settings = A2aSettings(retention_s=0.0, sweep_every_s=3600.0)
    async with hooked() as hook, wired("rest", echoing(), push=local(), settings=settings) as wire:
        task = await ordered(wire, hook)
        await hook.until(4)
        while not await wire.server.edges["app"].handler.sweep():  # a millisecond later it is old enough
            await anyio.lowlevel.checkpoint()
        assert (
            await refused(wire, "ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        ).reason == "TASK_NOT_FOUND"
        assert not await outbox(wire)._pushes.list(TaskScope("app"), task["id"])


def test_a2a_push_settings_that_make_no_sense():
    for name in ("attempts", "timeout_s", "at_once", "waiting"):
        with pytest.raises(ConfigError, match=name):
            PushSettings(**{name: 0})
    PushSettings(timeout_s=0.5, drain_s=0.0, backoff_s=0.0)
