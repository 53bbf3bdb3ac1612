"""The rows of the table: what each measures, its budget (DESIGN.md section 8), and how it is measured on one server.

Used by `main.py`. A row is measured on one server at a time; `main.py` alternates the servers and repeats.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import perf_counter

import load
import streams
from load import Expect, post, run_body
from script import ANSWER, PARTIALS
from servers import ADK, CEILING, OURS, Server

Numbers = dict[str, float]


@dataclass(frozen=True)
class Pace:
    """How long to measure: seconds of load per repeat; rows of slow streams have repeats, a window and a precision (of the
    search for their number) of their own."""

    repeats: int
    slow_repeats: int
    seconds: float
    window: float
    precision: float
    say: Callable[[str], None]


Measure = Callable[[Server, Pace], Awaitable[Numbers]]


@dataclass(frozen=True)
class Row:
    """One line. `metric` is the number of `measure` that is shown and compared; `ratio` how many times better than google-adk
    it has to be, `limit` the absolute value behind that on the reference machine."""

    key: str
    title: str
    metric: str
    unit: str
    measure: Measure
    more_is_better: bool = False
    ratio: float = 0.0
    limit: float = 0.0
    kinds: tuple[str, ...] = (ADK, OURS)
    once: bool = False


@dataclass(frozen=True)
class Group:
    """Rows measured on the same running servers; `store` is as `servers.start` takes it, and "" means: `measure` starts its
    own."""

    store: str
    rows: list[Row]


async def timed(
    server: Server, pace: Pace, make: Callable[[int], Awaitable[list[bytes]]], concurrency: int, expect: Expect
) -> Numbers:
    """A short run to learn the speed, then one of about `pace.seconds`; `make(n)` prepares n requests."""
    trial = min(concurrency, 8) * 2
    warm = await load.drive(server.port, await make(trial), min(concurrency, 8), expect)
    if warm.errors == warm.expected:
        raise RuntimeError(f"{server.kind}: {warm.first_error}")
    count = int(min(10_000, max(concurrency, 8, trial / warm.seconds * pace.seconds)))
    requests = await make(count)
    before = server.cpu()
    result = await load.drive(server.port, requests, concurrency, expect)
    numbers = result.numbers()
    numbers["cpu_ms"] = (server.cpu() - before) * 1000 / count
    numbers["errors"] += warm.errors
    await _forget(server)
    if result.first_error:
        pace.say(f"  {server.kind}: {result.errors} errors; the first: {result.first_error}")
    return numbers


async def _sessions(server: Server, app: str, count: int) -> list[str]:
    """Fresh empty sessions; `_forget` removes them, so that a fast server does not end with a larger heap than a slow one."""
    ids = server.new_session_ids(count)
    if server.kind != CEILING:
        paths = [f"/apps/{app}/users/u/sessions/{i}" for i in ids]
        await load.must(server.port, [post(path, {}) for path in paths])
        server.made += paths
    return ids


async def _forget(server: Server) -> None:
    paths, server.made = server.made, []
    if paths:
        await load.must(server.port, [load.delete(path) for path in paths])


def _run(app: str, concurrency: int) -> Measure:
    """`POST /run`, each request on a fresh session."""

    async def measure(server: Server, pace: Pace) -> Numbers:
        async def make(count: int) -> list[bytes]:
            return [post("/run", run_body(app, i, "hello")) for i in await _sessions(server, app, count)]

        return await timed(server, pace, make, concurrency, Expect(ANSWER.encode()))

    return measure


def _run_sse(concurrency: int, app: str = "sse") -> Measure:
    """`POST /run_sse` with streaming, each request on a fresh session: 200 partial events and the whole."""

    async def measure(server: Server, pace: Pace) -> Numbers:
        async def make(count: int) -> list[bytes]:
            ids = await _sessions(server, app, count)
            return [post("/run_sse", run_body(app, i, "hello", streaming=True)) for i in ids]

        return await timed(server, pace, make, concurrency, Expect(frames=PARTIALS + 1))

    return measure


def _events(count: int) -> list[dict[str, object]]:
    """A talk of so many events of about 300 bytes of JSON."""
    talk: list[dict[str, object]] = []
    for n in range(count):
        role, author = ("model", "one") if n % 2 else ("user", "user")
        text = f"This is sentence {n} of a longer talk between a user and an agent about the weather in several cities."
        content = {"role": role, "parts": [{"text": text}]}
        talk.append({"author": author, "invocationId": f"e-{n // 2}", "content": content})
    return talk


async def _preload(server: Server, user: str, count: int) -> str:
    """A session of `count` events, imported through `POST sessions`; its id."""
    path = f"/apps/one/users/{user}/sessions"
    status, body = await load.fetch(server.port, post(path, {"events": _events(count)}), timeout=600)
    if status != 200:
        raise RuntimeError(f"{server.kind} refused a session of {count} events: {status} {body[:300]!r}")
    return load.decode(body)["id"]


def _grown(size: int) -> Measure:
    """`POST /run` on sessions that have `size` events already, one request at a time. No session grows by more than a tenth
    in all repeats together."""

    async def measure(server: Server, pace: Pace) -> Numbers:
        first = await _known(server, size, 0)
        began = perf_counter()
        await load.must(server.port, [post("/run", run_body("one", first, "hello"))])
        affordable = int(pace.seconds / (perf_counter() - began))
        if size < 1000:
            each = max(1, size // 20)
            ids = [await _known(server, size, n) for n in range(min(40, max(20, affordable)) // each)]
        else:
            each, ids = max(10, min(size // 100, affordable)), [first]
        requests = [post("/run", run_body("one", i, "hello")) for i in ids for _ in range(each)]
        before = server.cpu()
        result = await load.drive(server.port, requests, 1, Expect(ANSWER.encode()))
        numbers = result.numbers()
        numbers["cpu_ms"] = (server.cpu() - before) * 1000 / len(requests)
        return numbers

    return measure


def _windowed(size: int) -> Measure:
    """How much slower a run on a long session is than one on 10 events; the server has a history window."""
    small, large = _grown(10), _grown(size)

    async def measure(server: Server, pace: Pace) -> Numbers:
        few, many = await small(server, pace), await large(server, pace)
        return {**many, "times": many["p50_ms"] / few["p50_ms"], "errors": few["errors"] + many["errors"]}

    return measure


async def _known(server: Server, size: int, number: int) -> str:
    """A large session is imported once per server, a small one for each measurement."""
    if size < 1000:
        return await _preload(server, "u", size)
    key = f"{size}/{number}"
    if key not in server.preloaded:
        server.preloaded[key] = await _preload(server, "u", size)
    return server.preloaded[key]


def _create(concurrency: int) -> Measure:
    async def measure(server: Server, pace: Pace) -> Numbers:
        async def make(count: int) -> list[bytes]:
            return [post("/apps/one/users/c/sessions", {"state": {"city": "Tokyo"}})] * count

        return await timed(server, pace, make, concurrency, Expect(b'"id"'))

    return measure


def _get(concurrency: int) -> Measure:
    async def measure(server: Server, pace: Pace) -> Numbers:
        session = await _preload(server, "u", 20)

        async def make(count: int) -> list[bytes]:
            return [load.get(f"/apps/one/users/u/sessions/{session}")] * count

        return await timed(server, pace, make, concurrency, Expect(b"sentence 19"))

    return measure


def _list(concurrency: int) -> Measure:
    async def measure(server: Server, pace: Pace) -> Numbers:
        path = "/apps/one/users/fifty/sessions"
        if "fifty" not in server.preloaded:
            await load.must(server.port, [post(path, {"state": {"city": "Tokyo"}})] * 50)
            server.preloaded["fifty"] = path

        async def make(count: int) -> list[bytes]:
            return [load.get(path)] * count

        return await timed(server, pace, make, concurrency, Expect(b"Tokyo"))

    return measure


async def _cold(server: Server, pace: Pace) -> Numbers:
    """Start to the first 200, memory then, and the first answer of an agent."""
    seconds = await server.ready()
    numbers: Numbers = {"cold_s": seconds, "idle_mb": server.resident_kb() / 1024, "errors": 0}
    if server.kind != CEILING:
        session = (await _sessions(server, "one", 1))[0]
        await load.must(server.port, [post("/run", run_body("one", session, "hello"))])
    return numbers


async def _on_time(server: Server, pace: Pace) -> Numbers:
    return await streams.most_on_time(server, pace.window, pace.precision, pace.say)


async def _stream_memory(server: Server, pace: Pace) -> Numbers:
    return await streams.memory_per_stream(server, 200)


def _store_groups(store: str) -> list[Group]:
    """The rows that exist in memory and on SQLite, with the same ratios."""
    kinds = (ADK, OURS, CEILING) if store == "memory" else (ADK, OURS)
    memory = store == "memory"

    def limit(value: float) -> float:
        return value if memory else 0.0

    def cpu(key: str, title: str, measure: Measure, ratio: float, value: float) -> Row:
        known = kinds if key.startswith("run_text") else (ADK, OURS)
        return Row(f"{store}/{key}", title, "cpu_ms", "CPU ms", measure, ratio=ratio, limit=limit(value), kinds=known)

    text = [cpu(f"run_text/{c}", f"/run, one text, {c} clients", _run("one", c), 15, 0.20) for c in (1, 16, 64)]
    tool = [cpu(f"run_tool/{c}", f"/run, one tool call, {c} clients", _run("tool", c), 16, 0.40) for c in (1, 16)]
    sse = [
        Row(
            f"{store}/run_sse/{c}",
            f"/run_sse, 200 partials, {c} streams",
            "frames_per_second",
            "events/s",
            _run_sse(c),
            more_is_better=True,
            ratio=20 if c == 64 else 0,
            limit=limit(60_000) if c == 64 else 0,
            kinds=kinds,
        )
        for c in (1, 16, 64)
    ]
    records = [
        cpu("get20", "get session of 20 events", _get(16), 11, 0.12),
        cpu("list50", "list 50 sessions", _list(16), 10, 0.15),
        cpu("create", "create session", _create(16), 6, 0.08),
    ]
    grown = [
        Row(
            f"{store}/grown/{n}",
            f"/run on a session of {n:,} events",
            "p50_ms",
            "ms p50",
            _grown(n),
            ratio=77 if n == 5000 else 0,
            limit=limit(5) if n == 5000 else 0,
        )
        for n in (10, 100, 1000, 5000)
    ]
    return [Group(store, rows) for rows in (text, tool, sse, records, grown)]


def groups() -> list[Group]:
    """The rows of sessions, runs and streams over REST, and of the process."""
    every = (ADK, OURS, CEILING)
    slow = [
        Row(
            "streams/on_time",
            "streams of a piece per 20 ms on time",
            "streams",
            "",
            _on_time,
            True,
            20,
            1000,
            once=True,
        ),
        Row(
            "streams/memory",
            "memory per open stream",
            "kb_per_stream",
            "kB",
            _stream_memory,
            ratio=4,
            limit=40,
            once=True,
        ),
    ]
    start = [
        Row("start/cold", "cold start to the first 200", "cold_s", "s", _cold, ratio=5.6, limit=0.30, kinds=every),
        Row("start/idle", "memory when idle", "idle_mb", "MB", _cold, ratio=2.6, limit=45, kinds=every),
    ]
    windowed = Row(
        "window/grown/5000",
        "/run on 5,000 events, history window of 20",
        "times",
        "x of 10 events",
        _windowed(5000),
        limit=2,
        kinds=(OURS,),
    )
    window = [
        windowed,
        replace(windowed, key="window/grown/5000/p50", title="the same", metric="p50_ms", unit="ms p50", limit=0),
    ]
    ceiling = [
        Row(
            "ceiling/json",
            "POST, bytes made before, 64 clients",
            "per_second",
            "req/s",
            _run("ready", 64),
            True,
            kinds=(CEILING,),
        ),
        Row(
            "ceiling/sse",
            "SSE frames made before, 64",
            "frames_per_second",
            "/s",
            _run_sse(64, "ready"),
            True,
            kinds=(CEILING,),
        ),
    ]
    return [
        *_store_groups("memory"),
        *_store_groups("sqlite"),
        Group("window", window),
        *[Group("memory", [row]) for row in slow],
        Group("", start),
        Group("memory", ceiling),
    ]
