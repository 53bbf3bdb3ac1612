"""Slow streams: how many at once stay on time, and what an open one costs in memory.

The model of app `slow` gives one piece per period on a fixed schedule. A piece is on time if it comes at most 20 ms after its
place in the schedule, which is anchored at the most punctual piece of its stream. A server carries N streams if, in a window
in which all of them are open, at least 95 % of the pieces due come on time and the 99th percentile of the gaps is below 100 ms.
Used by `rows.py`.
"""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import load
from servers import Server

PERIOD = 0.020
LATE = 0.020
SHARE = 0.95
GAP = 0.100
LIMIT = 2048
STARTS_PER_SECOND = 200
CARRY = len(load.FRAME) - 1


class Stream(asyncio.Protocol):
    """One open `/run_sse`; notes when each frame came."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.times: list[float] = []
        self.tail = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        joined = self.tail + data
        self.times.extend([perf_counter()] * joined.count(load.FRAME))
        self.tail = joined[-CARRY:]


@dataclass
class Probe:
    """What N streams did in the window: the share of pieces on time, and the 99th percentile of the gaps in seconds."""

    streams: int
    on_time: float
    gap_p99: float

    @property
    def passed(self) -> bool:
        return self.on_time >= SHARE and self.gap_p99 < GAP


async def open_streams(server: Server, count: int, pieces: int, period: float) -> list[Stream]:
    """Open streams at an even pace, so that the start is not what is measured."""
    loop = asyncio.get_running_loop()
    ids = server.new_session_ids(count)
    await load.must(server.port, [load.post(f"/apps/slow/users/u/sessions/{i}", {}) for i in ids])
    text = f"{pieces} {period * 1000:g}"
    streams: list[Stream] = []
    began = perf_counter()
    for n, session in enumerate(ids):
        await asyncio.sleep(max(0.0, began + n / STARTS_PER_SECOND - perf_counter()))
        request = load.post("/run_sse", load.run_body("slow", session, text, streaming=True))
        _, stream = await loop.create_connection(lambda r=request: Stream(r), "127.0.0.1", server.port)
        streams.append(stream)
    return streams


async def close_streams(server: Server, streams: list[Stream]) -> None:
    """Hang up, and wait until the server has noticed (at most 10 s)."""
    for stream in streams:
        stream.transport.abort()
    for _ in range(20):
        before = server.cpu()
        await asyncio.sleep(0.5)
        if server.cpu() - before < 0.03:
            return


async def probe(server: Server, count: int, window: float) -> Probe:
    """Open `count` streams and watch them for `window` seconds."""
    settle = 0.7
    lasting = count / STARTS_PER_SECOND * 2 + settle + window + 5
    streams = await open_streams(server, count, int(lasting / PERIOD), PERIOD)
    await asyncio.sleep(settle)
    began = perf_counter()
    await asyncio.sleep(window)
    ended = perf_counter()
    await close_streams(server, streams)
    return judge(streams, began, ended)


def judge(streams: list[Stream], began: float, ended: float) -> Probe:
    on_time, due, gaps = 0, 0, []
    for stream in streams:
        due += int((ended - began) / PERIOD)
        anchor = min((t - n * PERIOD for n, t in enumerate(stream.times)), default=0.0)
        inside = [(n, t) for n, t in enumerate(stream.times) if began <= t < ended]
        on_time += sum(t - n * PERIOD - anchor <= LATE for n, t in inside)
        gaps += [b[1] - a[1] for a, b in pairwise(inside)] or [ended - began]
    gaps.sort()
    return Probe(len(streams), min(1.0, on_time / due), gaps[int(len(gaps) * 0.99)])


async def most_on_time(server: Server, window: float, precision: float, say: Any) -> dict[str, float]:
    """The largest number of streams that stay on time: doubled from 16, then bisected. A failed probe is tried once more."""
    good, bad, gap_only = 0, 0, 0
    count = 16
    while not (bad and bad - good <= max(1.0, good * precision)):
        result = await probe(server, count, window)
        if not result.passed:
            result = await probe(server, count, window)
        say(f"  {count} streams: {result.on_time:.1%} on time, p99 gap {result.gap_p99 * 1000:.0f} ms")
        if result.gap_p99 < GAP:
            gap_only = max(gap_only, count)
        if result.passed:
            good = count
            if good >= LIMIT:
                break
        else:
            bad = count
        count = (good + bad) // 2 if bad else min(LIMIT, good * 2)
    return {"streams": good, "streams_gap_only": gap_only, "errors": 0}


async def memory_per_stream(server: Server, count: int) -> dict[str, float]:
    """Resident kB per open stream that gives one piece per second."""
    await close_streams(server, await open_streams(server, 20, 100, 0.05))
    before = server.resident_kb()
    streams = await open_streams(server, count, 1000, 1.0)
    silent = count
    for _ in range(40):
        await asyncio.sleep(0.5)
        silent = sum(not stream.times for stream in streams)
        if not silent:
            break
    grown = server.resident_kb() - before
    await close_streams(server, streams)
    return {"kb_per_stream": grown / count, "errors": silent}
