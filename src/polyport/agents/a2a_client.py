"""A2AClient: calls one remote agent over A2A 1.0 or 0.3, whatever its card prefers that we speak (spec a2a 1.2, 1.7, 1.8).

Used by `RemoteAgent`, by the command line, and by programs of users. Answers and frames are Structs of `wire/a2a`. A stream
that is cut is taken up again without loss or doubles; a task that cannot be streamed is polled. Never resends a message.
"""

import ipaddress
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, Literal

import anyio
from msgspec import Struct, structs

from polyport.agents.a2a_card_cache import CardCache, CardRules, Found
from polyport.agents.a2a_door import ANYONE, A2ALimits, Caller, Door
from polyport.agents.a2a_follow import Follow, send_once
from polyport.agents.a2a_http import HttpClient, leads_inside, origin, place, same_host
from polyport.agents.a2a_rest import Rest
from polyport.agents.a2a_task import RemoteTask
from polyport.agents.a2a_transport import Binding, JsonRpc, Target
from polyport.errors import BadRequest, ConfigError, TimedOut, Unavailable
from polyport.seams import REAL, Seams
from polyport.wire import a2a
from polyport.wire.a2a_card import AgentCard, AgentInterface
from polyport.wire.a2a_errors import UnsupportedOperation
from polyport.wire.a2a_translate import EXTENSION

GRPC = "GRPC"


def _grpc(target: Target) -> Binding:
    from polyport.agents.a2a_grpc import Grpc  # an optional dependency; `_choose` has seen that it is there

    return Grpc(target)


BINDINGS: Mapping[str, Callable[[Target], Binding]] = {"JSONRPC": JsonRpc, "HTTP+JSON": Rest, GRPC: _grpc}
"""protocolBinding of a card -> how to speak it. gRPC is passed over where its packages are not installed."""

Wait = Literal["blocking", "polling", "no"]


class A2AOptions(Struct, frozen=True, kw_only=True):
    """`trusted_hosts` ("host" or "host:port") get a caller's headers too, beside the hosts of the URL that was given (of the
    interfaces, when a card was). `allow_private` False connects to addresses of the internet only; None lets a card that came
    from the internet not lead into this network; True allows all. `extensions` are asked for with every request."""

    limits: A2ALimits = A2ALimits()
    card: CardRules = CardRules()
    trusted_hosts: tuple[str, ...] = ()
    allow_private: bool | None = None
    extensions: tuple[str, ...] = ()


class A2AClient:
    """`A2AClient("https://host/agent")`: a base URL, the URL of a card, or a card (object or JSON).

    `card_url` says that the URL is that of a card, whatever it looks like. `bindings` are the transports to use, by the names
    that cards give them. Close it with `aclose`, or let the event loop do so at its end. ConfigError for a card or URL that
    cannot be.
    """

    def __init__(
        self,
        where: str | AgentCard | Mapping[str, Any],
        *,
        options: A2AOptions | None = None,
        card_url: bool = False,
        bindings: Mapping[str, Callable[[Target], Binding]] = BINDINGS,
        seams: Seams = REAL,
        sleep: Callable[[float], Any] = anyio.sleep,
    ) -> None:
        self.options = options or A2AOptions()
        limits = self.options.limits
        self._bindings = bindings
        self._seams = seams
        self._sleep = sleep
        self._http = HttpClient(connect_s=limits.connect_timeout_s, idle_s=limits.idle_timeout_s)
        self._named: tuple[str, ...] = (where,) if isinstance(where, str) else ()
        self._door = Door(self._http, self._trusts)
        try:
            self._cards = CardCache(
                where,
                self._door,
                exact=card_url,
                rules=self.options.card,
                limits=limits,
                public_only=self.options.allow_private is False,
                clock=seams.clock,
            )
        except BadRequest as error:
            raise ConfigError(f"no remote agent can be at {where!r:.200}: {error}") from None
        if not isinstance(where, str):
            urls = (_url_of(interface, "") for interface in self._cards.given_interfaces)
            self._named = tuple(url for url in urls if _is_http(url))

    def _trusts(self, url: str) -> bool:
        """Whether a caller's headers may go to `url` (FR-184)."""
        if any(same_host(named, url) for named in self._named):
            return True
        scheme, host, port = origin(url)
        insecure = scheme == "http" and any(origin(named)[0] == "https" for named in self._named)
        return not insecure and bool({host, f"{host}:{port}"} & set(self.options.trusted_hosts))

    # ---- the card and the way to speak

    async def card(self, caller: Caller = ANYONE) -> AgentCard:
        """The agent's card. Errors as those of CardCache.get."""
        return (await self._cards.get(caller)).card

    async def found(self, caller: Caller = ANYONE) -> Found:
        """The card as it came: with its JSON and the URL where it is."""
        return await self._cards.get(caller)

    async def extended_card(self, caller: Caller = ANYONE) -> AgentCard:
        """The card that the agent shows to this caller. UnsupportedOperation when it has none."""
        card, binding = await self._connect(caller)
        if not card.capabilities.extended_agent_card:
            raise UnsupportedOperation(f"the agent {card.name!r} has no extended card")
        return await binding.call("GetExtendedAgentCard", a2a.GetExtendedAgentCardRequest(), caller)

    async def _connect(self, caller: Caller) -> tuple[AgentCard, Binding]:
        found = await self._cards.get(caller)
        card = found.card
        interface = self._choose(card)
        declared = [e.uri for e in card.capabilities.extensions if e.uri == EXTENSION]
        target = Target(
            url=_url_of(interface, found.url),
            door=self._door,
            limits=self.options.limits,
            new_id=self._seams.new_id,
            tenant=interface.tenant,
            v03=_version(interface) == "0.3",
            extensions=tuple(dict.fromkeys([*self.options.extensions, *declared])),
            public_only=await self._public_only(found, interface),
        )
        return card, self._bindings[interface.protocol_binding.upper()](target)

    def _choose(self, card: AgentCard) -> AgentInterface:
        """The first interface that we speak. Unavailable names what the card offers."""
        passed_over = False
        for interface in card.supported_interfaces:
            binding = interface.protocol_binding.upper()
            if binding not in self._bindings or _version(interface) not in ("1.0", "0.3"):
                continue
            if binding in BINDINGS and not _is_callable(interface):
                continue
            if self._bindings[binding] is _grpc and not _speaks_grpc():
                passed_over = True
                continue
            return interface
        if passed_over:
            raise ConfigError(f"the agent {card.name!r} speaks gRPC only, which needs: pip install grpcio protobuf")
        offered = ", ".join(f"{i.protocol_binding} {i.protocol_version}" for i in card.supported_interfaces)
        spoken = ", ".join(self._bindings)
        raise Unavailable(
            f"the agent {card.name!r} offers {offered or 'no interface'}; this client speaks {spoken} in A2A 1.0 and 0.3"
        )

    async def _public_only(self, found: Found, interface: AgentInterface) -> bool:
        """Whether only addresses of the internet may be connected to: a card from there must not lead in here."""
        allowed = self.options.allow_private
        if allowed is not None or not found.url or same_host(found.url, _url_of(interface, found.url)):
            return allowed is False
        return not await leads_inside(found.url)

    # ---- messages

    async def send(
        self, message: a2a.Message | a2a.SendMessageRequest | str, *, caller: Caller = ANYONE, wait: Wait = "blocking"
    ) -> a2a.Task | a2a.Message:
        """Send a message. "blocking" waits in one request, "polling" looks again and again, "no" gives the task as it is at
        once. Errors of the remote agent by name; Unavailable, TimedOut."""
        request = self._request(message)
        if wait != "polling":
            _, binding = await self._connect(caller)
            return await send_once(binding, request, caller, immediately=wait == "no")
        _, binding = await self._connect(caller)
        follow = self._follow(binding, caller)
        limit = self.options.limits.timeout_s
        try:
            with anyio.fail_after(limit):
                async with aclosing(follow.send_and_poll(request)) as payloads:
                    async for _ in payloads:
                        pass
                return follow.task.message or await self.get(follow.task.id, caller=caller)
        except TimeoutError:
            raise TimedOut(f"remote task {follow.task.id!r:.80} was not over within {limit:g} s") from None

    async def stream(
        self, message: a2a.Message | a2a.SendMessageRequest | str, *, caller: Caller = ANYONE, streaming: bool = True
    ) -> AsyncGenerator[a2a.Payload]:
        """Send a message and give what comes: one Message; or a Task and its updates, each once, until the task has ended or
        asks for input. An agent without streaming, or any with `streaming` off, is polled. Close it to hang up; the task goes
        on."""
        request = self._request(message)
        card, binding = await self._connect(caller)
        follow = self._follow(binding, caller)
        streams = streaming and bool(card.capabilities.streaming)
        payloads = follow.send_and_stream(request) if streams else follow.send_and_poll(request)
        async with aclosing(payloads):
            async for payload in payloads:
                yield payload

    async def subscribe(
        self, task_id: str, *, caller: Caller = ANYONE, until_input: bool = False
    ) -> AsyncGenerator[a2a.Payload]:
        """Follow a task: a Task as it is now, then its updates until it has ended, or the server closes while it waits for
        somebody. With `until_input` the end is also where it asks for input."""
        card, binding = await self._connect(caller)
        follow = self._follow(binding, caller, task_id=task_id, until_input=until_input)
        payloads = follow.subscribe() if card.capabilities.streaming else follow.poll()
        async with aclosing(payloads):
            async for payload in payloads:
                yield payload

    def _follow(self, binding: Binding, caller: Caller, task_id: str = "", until_input: bool = True) -> Follow:
        return Follow(
            binding=binding,
            caller=caller,
            limits=self.options.limits,
            task=RemoteTask(task_id),
            until_input=until_input,
            sleep=self._sleep,
        )

    def _request(self, message: a2a.Message | a2a.SendMessageRequest | str) -> a2a.SendMessageRequest:
        if isinstance(message, str):
            message = a2a.Message(parts=[a2a.Part(text=message)])
        request = message if isinstance(message, a2a.SendMessageRequest) else a2a.SendMessageRequest(message=message)
        said = request.message
        role = a2a.Role.USER if said.role is a2a.Role.UNSPECIFIED else said.role
        said = structs.replace(said, message_id=said.message_id or self._seams.new_id(), role=role)
        return structs.replace(request, message=said)

    # ---- tasks

    async def get(self, task_id: str, *, history_length: int | None = None, caller: Caller = ANYONE) -> a2a.Task:
        """A task as it is now. TaskNotFound."""
        return await self._call("GetTask", a2a.GetTaskRequest(id=task_id, history_length=history_length), caller)

    async def list(
        self, request: a2a.ListTasksRequest | None = None, *, caller: Caller = ANYONE
    ) -> a2a.ListTasksResponse:
        """One page of the caller's tasks. UnsupportedOperation from a 0.3 agent."""
        return await self._call("ListTasks", request or a2a.ListTasksRequest(), caller)

    async def cancel(
        self, task_id: str, *, metadata: dict[str, Any] | None = None, caller: Caller = ANYONE
    ) -> a2a.Task:
        """Stop a task; the task as it is then. TaskNotFound, TaskNotCancelable."""
        return await self._call("CancelTask", a2a.CancelTaskRequest(id=task_id, metadata=metadata), caller)

    # ---- push notifications

    async def create_push_config(
        self, config: a2a.TaskPushNotificationConfig, *, caller: Caller = ANYONE
    ) -> a2a.TaskPushNotificationConfig:
        """Have the updates of `config.task_id` posted to `config.url`; the config as stored, with its id."""
        return await self._call("CreateTaskPushNotificationConfig", config, caller)

    async def get_push_config(
        self, task_id: str, config_id: str, *, caller: Caller = ANYONE
    ) -> a2a.TaskPushNotificationConfig:
        request = a2a.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
        return await self._call("GetTaskPushNotificationConfig", request, caller)

    async def list_push_configs(
        self, task_id: str, *, page_size: int = 0, page_token: str = "", caller: Caller = ANYONE
    ) -> a2a.ListTaskPushNotificationConfigsResponse:
        request = a2a.ListTaskPushNotificationConfigsRequest(
            task_id=task_id, page_size=page_size, page_token=page_token
        )
        return await self._call("ListTaskPushNotificationConfigs", request, caller)

    async def delete_push_config(self, task_id: str, config_id: str, *, caller: Caller = ANYONE) -> None:
        request = a2a.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
        await self._call("DeleteTaskPushNotificationConfig", request, caller)

    async def _call(self, operation: str, request: Any, caller: Caller) -> Any:
        _, binding = await self._connect(caller)
        return await binding.call(operation, request, caller)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()


def _is_http(url: str) -> bool:
    try:
        return bool(origin(url))
    except BadRequest:
        return False


def _url_of(interface: AgentInterface, card_url: str) -> str:
    """Where an interface is, as a URL. A gRPC target without a scheme is TLS, but for a card that came over plain HTTP, and on
    this machine."""
    if interface.protocol_binding.upper() != GRPC or "://" in interface.url:
        return interface.url
    plain = card_url.startswith("http://") or (not card_url and _is_here(f"https://{interface.url}"))
    return f"{'http' if plain else 'https'}://{interface.url}"


def _is_callable(interface: AgentInterface) -> bool:
    """Whether an interface names a place for its binding: a URL, or for gRPC no more than a host and a port."""
    url = _url_of(interface, "")
    grpc = interface.protocol_binding.upper() == GRPC
    return _is_http(url) and not (grpc and place(url).rstrip("/").count("/") > 2)


def _is_here(url: str) -> bool:
    try:
        host = origin(url)[1]
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (BadRequest, ValueError):
        return False


def _speaks_grpc() -> bool:
    try:
        return find_spec("grpc") is not None and find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even the package google
        return False


def _version(interface: AgentInterface) -> str:
    """Major.Minor; a card that does not say means the one it is written in."""
    return ".".join(interface.protocol_version.split(".")[:2]) or "1.0"
