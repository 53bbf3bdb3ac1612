"""The rows of A2A 1.0 over JSON-RPC. Used by `main.py`, after those of `rows.py`.

Each request is a new task in a new context, and neither server forgets one: both grow while they are measured.
"""

import load
from load import Expect
from rows import Group, Measure, Numbers, Pace, Row, timed
from script import ANSWER, PARTIALS
from servers import ADK, OURS, SDK, Server

UPDATES = 1000
KINDS = (ADK, OURS, SDK)
AROUND = {ADK: 5, OURS: 4, SDK: 4}
"""Frames of a stream that are not pieces: the task, its states and the whole text (which google-adk says twice)."""


def call(app: str, method: str, message_id: str, text: str) -> bytes:
    """One JSON-RPC call, as a client of A2A 1.0 makes it."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": {"message": message}}
    return load.post(f"/a2a/{app}", body, "a2a-version: 1.0\r\n")


def _send(concurrency: int) -> Measure:
    """`SendMessage`, answered with the task when it is completed."""

    async def measure(server: Server, pace: Pace) -> Numbers:
        async def make(count: int) -> list[bytes]:
            return [call("one", "SendMessage", i, "hello") for i in server.new_session_ids(count)]

        return await timed(server, pace, make, concurrency, Expect(ANSWER.encode()))

    return measure


def _stream(app: str, text: str, pieces: int, concurrency: int) -> Measure:
    """`SendStreamingMessage`, read to its end; every piece of the model is a frame on both servers."""

    async def measure(server: Server, pace: Pace) -> Numbers:
        frames = pieces + AROUND[server.kind]

        async def make(count: int) -> list[bytes]:
            return [call(app, "SendStreamingMessage", i, text) for i in server.new_session_ids(count)]

        return await timed(server, pace, make, concurrency, Expect(frames=frames))

    return measure


def groups() -> list[Group]:
    chunks = _stream("sse", "hello", PARTIALS, 16)
    updates = _stream("slow", f"{UPDATES} 0", UPDATES, 1)
    events, cpu = ("frames_per_second", "events/s"), ("cpu_ms", "CPU ms")
    rows = [
        *[
            Row(
                f"a2a/send/{c}",
                f"A2A SendMessage, one text, {c} clients",
                *cpu,
                _send(c),
                ratio=13,
                limit=0.35,
                kinds=KINDS,
            )
            for c in (1, 16)
        ],
        Row(
            "a2a/stream/16",
            "A2A SendStreamingMessage, one text, 16 clients",
            *cpu,
            _stream("one", "hello", 0, 16),
            ratio=13,
            limit=0.45,
            kinds=KINDS,
        ),
        Row(f"a2a/chunks/{PARTIALS}", f"A2A stream, {PARTIALS} pieces, 16 clients", *events, chunks, True, kinds=KINDS),
        Row(f"a2a/chunks/{PARTIALS}/cpu", "the same, per request", *cpu, chunks, kinds=KINDS),
        Row(
            f"a2a/updates/{UPDATES}", f"A2A task of {UPDATES:,} updates, 1 client", *events, updates, True, kinds=KINDS
        ),
        Row(f"a2a/updates/{UPDATES}/cpu", "the same, per request", *cpu, updates, kinds=KINDS),
    ]
    return [Group("a2a", rows)]
