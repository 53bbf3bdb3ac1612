"""What `polyport a2a` does: one call to a remote agent, and its answer in the terminal.

Text of answers goes to standard output, each piece once; all else to standard error. With --json every payload is one line on
standard output. Holds no state; the exit code says how the task stands.
"""

import mimetypes
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

from polyport.agents.a2a_card_cache import CardRules
from polyport.agents.a2a_client import BINDINGS, A2AClient, A2AOptions
from polyport.agents.a2a_door import A2ALimits, Caller
from polyport.codec import encode
from polyport.errors import ConfigError, TimedOut
from polyport.wire import a2a
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_sign import verify

_UNSEEN = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])
ASKS = 3
"""The exit code when the agent wants something from its caller."""


def run(command: str, options: Mapping[str, Any]) -> None:
    """Carry out one command, then end the process with its exit code. ConfigError for words that cannot be; the remote
    agent's errors as they are."""
    code = anyio.run(_run, command, options)
    if code:
        raise SystemExit(code)


async def _run(command: str, options: Mapping[str, Any]) -> int:
    limit: float = options["timeout"]
    client = _client(options, limit)
    call = Call(client, _caller(options), options)
    try:
        with anyio.fail_after(limit):
            return await getattr(call, command)()
    except TimeoutError:
        raise TimedOut(f"the agent was not done within {limit:g} s (--timeout)") from None
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()


def _client(options: Mapping[str, Any], limit: float) -> A2AClient:
    keys = [key for path in options["keys"] for key in _keys(path)]
    chosen = options["binding"]
    return A2AClient(
        options["url"],
        options=A2AOptions(
            limits=A2ALimits(timeout_s=limit, call_timeout_s=min(limit, 30.0)),
            card=CardRules(keys=keys),
            trusted_hosts=tuple(options["trusted"]),
            allow_private=False if options["public_only"] else None,
        ),
        bindings={chosen.upper(): BINDINGS[chosen.upper()]} if chosen else BINDINGS,
    )


def _caller(options: Mapping[str, Any]) -> Caller:
    headers: dict[str, str] = {}
    for line in options["headers"]:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigError("--header needs the form 'Name: value'")
        headers[name.strip()] = value.strip()
    variable = options["token_env"]
    if variable:
        token = os.environ.get(variable)
        if not token:
            raise ConfigError(f"the environment variable {variable} of --token-env is not set")
        headers["authorization"] = f"Bearer {token}"
    return Caller(headers=headers)


def _keys(path: str) -> list[dict[str, Any]]:
    """The JWKs in a file: one, or a set."""
    try:
        found: Any = msgspec.json.decode(Path(path).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"no key can be read from {path}: {error}") from None
    if isinstance(found, dict):
        one = cast("dict[str, Any]", found)
        found = one.get("keys", [one])
    keys = cast("list[Any]", found) if isinstance(found, list) else []
    if not keys or not all(isinstance(key, dict) for key in keys):
        raise ConfigError(f"{path} has neither a JWK nor a set of them")
    return cast("list[dict[str, Any]]", keys)


class Call:
    """One command with its words; each method gives the exit code."""

    def __init__(self, client: A2AClient, caller: Caller, options: Mapping[str, Any]) -> None:
        self._client = client
        self._caller = caller
        self._options = options
        self._json: bool = options["as_json"]
        self._shown = ""
        self._previewed = ""
        self._open_line = False

    async def card(self) -> int:
        if self._options["extended"]:
            card = await self._client.extended_card(self._caller)
            plain: Any = msgspec.json.decode(encode(card))
            url = ""
        else:
            found = await self._client.found(self._caller)
            card, plain, url = found.card, found.plain, found.url
        if self._json:
            print(encode(plain).decode())
            return 0
        for line in _card_lines(card, url):
            print(line)
        if card.signatures:
            keys = [key for path in self._options["keys"] for key in _keys(path)]
            print(
                f"signed by  {verify(plain, keys)} (checked)"
                if keys
                else "signed     not checked; name keys with --key"
            )
        return 0

    async def send(self) -> int:
        request = a2a.SendMessageRequest(message=self._message())
        if self._options["no_wait"]:
            return self._whole(await self._client.send(request, caller=self._caller, wait="no"))
        streams = not self._options["no_stream"]
        return await self._follow(self._client.stream(request, caller=self._caller, streaming=streams))

    async def get(self) -> int:
        history = self._options["history"]
        return self._whole(await self._client.get(self._options["task"], history_length=history, caller=self._caller))

    async def cancel(self) -> int:
        self._whole(await self._client.cancel(self._options["task"], caller=self._caller))
        return 0

    async def subscribe(self) -> int:
        return await self._follow(self._client.subscribe(self._options["task"], caller=self._caller))

    def _message(self) -> a2a.Message:
        text, data = self._options["text"], self._options["data"]
        if text is None and not self._options["files"] and data is None:
            text = sys.stdin.read()
        parts = [a2a.Part(text=text)] if text else []
        for name in self._options["files"]:
            try:
                raw = Path(name).read_bytes()
            except OSError as error:
                raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
            media = mimetypes.guess_type(name)[0] or "application/octet-stream"
            parts.append(a2a.Part(raw=raw, filename=Path(name).name, media_type=media))
        if data is not None:
            try:
                parts.append(a2a.Part(data=msgspec.json.decode(data)))
            except msgspec.DecodeError as error:
                raise ConfigError(f"--data is no JSON: {error}") from None
        if not parts:
            raise ConfigError("there is nothing to send: give a text, --file or --data")
        return a2a.Message(parts=parts, task_id=self._options["task"], context_id=self._options["context"])

    # ---- what comes

    async def _follow(self, payloads: AsyncGenerator[a2a.Payload]) -> int:
        state = a2a.TaskState.UNSPECIFIED
        async with aclosing(payloads):
            async for payload in payloads:
                if self._json:
                    print(encode(a2a.frame(payload)).decode(), flush=True)
                else:
                    self._show(payload)
                if isinstance(payload, a2a.Task | a2a.TaskStatusUpdateEvent):
                    state = payload.status.state
        return _code(state)

    def _whole(self, payload: a2a.Task | a2a.Message) -> int:
        if self._json:
            print(encode(payload).decode())
        else:
            self._show(payload)
        return _code(payload.status.state) if isinstance(payload, a2a.Task) else 0

    def _show(self, payload: a2a.Payload) -> None:
        if isinstance(payload, a2a.Message):
            self._write(payload.parts)
            self._end_line()
            return
        if isinstance(payload, a2a.TaskArtifactUpdateEvent):
            self._artifact(payload)
            return
        if isinstance(payload, a2a.Task):
            note(f"task {payload.id} context {payload.context_id}")
            for artifact in payload.artifacts or ():
                if not (artifact.metadata or {}).get("adk_partial"):
                    self._write(artifact.parts)
                    self._end_line()
        self._end_line()
        status = payload.status
        note(f"state {status.state.removeprefix('TASK_STATE_').lower().replace('_', '-')}")
        if status.message is not None:
            answers = status.state is a2a.TaskState.COMPLETED or status.state.interrupted
            self._write(status.message.parts, out=answers)
            self._end_line()

    def _artifact(self, update: a2a.TaskArtifactUpdateEvent) -> None:
        """A preview is written as it comes; the whole that follows it is not written again."""
        artifact = update.artifact
        said = {**(artifact.metadata or {}), **(update.metadata or {})}
        preview = said.get("adk_partial") is True
        if preview and update.last_chunk:
            return
        text = "".join(part.text or "" for part in artifact.parts)
        if not preview and self._previewed and text == self._previewed:
            self._previewed = ""
            self._end_line()
            return
        if artifact.artifact_id != self._shown or (self._previewed and not preview):
            self._end_line()
        self._previewed = self._previewed + text if preview else ""
        self._shown = artifact.artifact_id
        self._write(artifact.parts)

    def _write(self, parts: list[a2a.Part], *, out: bool = True) -> None:
        for part in parts:
            text = _text_of(part)
            if not out:
                note(text)
                continue
            print(text, end="", flush=True)
            if text:
                self._open_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open_line:
            print(flush=True)
            self._open_line = False


def note(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


def _text_of(part: a2a.Part) -> str:
    """A part for people. What comes from elsewhere must not steer the terminal."""
    if part.text is not None:
        return part.text.translate(_UNSEEN) if sys.stdout.isatty() else part.text
    if part.url is not None:
        return f"[{part.filename or 'file'}: {part.url}]\n"
    if part.raw is not None:
        return f"[{part.filename or 'file'}: {part.media_type or 'bytes'}, {len(part.raw)} bytes]\n"
    return "" if part.data is msgspec.UNSET else encode(part.data).decode() + "\n"


def _code(state: a2a.TaskState) -> int:
    if state.interrupted:
        return ASKS
    return 1 if state.terminal and state is not a2a.TaskState.COMPLETED else 0


def _card_lines(card: AgentCard, url: str) -> list[str]:
    """A card for people."""
    abilities = card.capabilities
    flags = [
        name
        for name, on in (
            ("streaming", abilities.streaming),
            ("push notifications", abilities.push_notifications),
            ("extended card", abilities.extended_agent_card),
        )
        if on
    ]
    lines = [f"{card.name} {card.version}", f"           {card.description}"] if card.description else [card.name]
    if url:
        lines.append(f"card       {url}")
    lines += [
        f"interface  {i.protocol_binding} {i.protocol_version} {i.url}" + (f" (tenant {i.tenant})" if i.tenant else "")
        for i in card.supported_interfaces
    ]
    lines.append(f"can        {', '.join(flags) or 'nothing beyond plain calls'}")
    lines += [f"extension  {e.uri}{' (required)' if e.required else ''}" for e in abilities.extensions]
    lines += [f"skill      {s.id}: {s.description or s.name}" for s in card.skills]
    lines += [f"auth       {name}" for name in card.security_schemes]
    return lines
