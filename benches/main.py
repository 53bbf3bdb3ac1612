"""`make bench`: measures Polyport against google-adk in one run and prints one table. See docs/performance.md.

Makes an environment of its own for google-adk in `.bench/adk`. Each server is a process on one core, this process (the client)
is on another one; servers are measured in turn, A B A B, and medians are taken.
"""

import argparse
import gc
import importlib.metadata
import json
import subprocess
import sys
import time
from pathlib import Path

import a2a_rows
import load
import report
import rows as common
import servers
import uvloop
from rows import Group, Numbers, Pace, Row
from script import ANSWER
from servers import ADK, CEILING, OURS, SDK, Server

ADK_VERSION = "2.13.0"
A2A_SDK = "1.3.0"
SHARED = ["uvicorn", "uvloop", "httptools"]  # the same versions in both environments


def groups() -> list[Group]:
    """All rows, in the order of the table."""
    return [*common.groups(), *a2a_rows.groups()]


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def prepare_adk() -> None:
    """Make `.bench/adk` unless it is there with the right versions."""
    shared = [f"{name}=={importlib.metadata.version(name)}" for name in SHARED]
    wanted = [f"google-adk=={ADK_VERSION}", f"a2a-sdk[http-server]=={A2A_SDK}", *shared]
    folder = servers.BENCH / "adk"
    done = folder / "installed.txt"
    if done.exists() and done.read_text().split() == wanted:
        return
    say(f"installing {' '.join(wanted)} in {folder} (once; about a minute)")
    folder.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(servers.ADK_PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *wanted], check=True)
    done.write_text(" ".join(wanted))


async def warm(server: Server) -> None:
    """Wait for a server and let it answer once, so that nothing is loaded while it is measured."""
    await server.ready()
    if server.kind in (CEILING, SDK):
        return
    session = server.new_session_ids(1)[0]
    await load.must(server.port, [load.post(f"/apps/one/users/u/sessions/{session}", {})])
    status, body = await load.fetch(server.port, load.post("/run", load.run_body("one", session, "hello")))
    if status != 200 or ANSWER.encode() not in body:
        raise RuntimeError(f"{server.kind} answered {status} to /run: {body[:500]!r}\n{server.log.read_text()[-2000:]}")


async def run_group(
    group: Group, rows: list[Row], kinds: list[str], pace: Pace, out: dict[str, report.Samples]
) -> None:
    """Measure rows that share running servers, row by row, the servers in turn."""
    needed = [kind for kind in kinds if any(kind in row.kinds for row in rows)]
    running = {kind: servers.start(kind, group.store) for kind in needed} if group.store else {}
    try:
        for server in running.values():
            await warm(server)
        for row in rows:
            if row.key in out:
                continue
            say(f"{row.key}: {row.title}")
            same = [other for other in rows if other.measure is row.measure]
            for _ in range(pace.slow_repeats if row.once else pace.repeats):
                for kind in [k for k in needed if k in row.kinds]:
                    numbers = await measure(row, kind, running.get(kind), pace)
                    for other in same:
                        out.setdefault(other.key, {}).setdefault(kind, []).append(numbers)
    finally:
        for server in running.values():
            server.stop()


async def measure(row: Row, kind: str, server: Server | None, pace: Pace) -> Numbers:
    """One row on one server; a server of its own if the group has none running."""
    own = servers.start(kind) if server is None else None
    gc.collect()
    gc.disable()
    try:
        return await row.measure(server or own, pace)
    finally:
        gc.enable()
        if own is not None:
            own.stop()


async def run(kinds: list[str], only: list[str], pace: Pace) -> tuple[dict[str, report.Samples], list[str]]:
    """What was measured, and what could not be."""
    out: dict[str, report.Samples] = {}
    failures: list[str] = []
    for group in groups():
        rows = [row for row in group.rows if not only or any(word in row.key for word in only)]
        rows = [row for row in rows if any(kind in row.kinds for kind in kinds)]
        if not rows:
            continue
        try:
            await run_group(group, rows, kinds, pace, out)
        except RuntimeError as error:
            failures.append(f"{rows[0].key} ...: {error}")
            say(f"FAILED, going on with the next rows: {failures[-1]}")
    return out, failures


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three short repeats: minutes instead of half an hour")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW", help="rows whose key contains this word (repeatable)"
    )
    parser.add_argument("--list", action="store_true", help="print the keys of the rows and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to a file")
    parser.add_argument("--details", action="store_true", help="print a second table with every number")
    parser.add_argument("--no-adk", action="store_true", help="leave out google-adk; budgets are then absolute")
    parser.add_argument("--no-ours", action="store_true", help="leave out Polyport, to check the benchmark itself")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    every = [row for group in groups() for row in group.rows]
    if chosen.list:
        print("\n".join(f"{row.key:24}{row.title}" for row in every))
        return
    kinds = [
        k
        for k, off in ((ADK, chosen.no_adk), (OURS, chosen.no_ours), (CEILING, False), (SDK, chosen.no_adk))
        if not off
    ]
    if ADK in kinds:
        prepare_adk()
    pace = Pace(3, 1, 0.6, 1.2, 0.25, say) if chosen.quick else Pace(5, 2, 2.0, 2.0, 0.1, say)
    server_core, client_core = servers.cores()
    if server_core is None:
        say("processes cannot be pinned here, or there is one core only: the numbers mean little")
    servers.pin(client_core)
    began = time.monotonic()
    measured, failures = uvloop.run(run(kinds, chosen.only, pace))
    facts = {
        **report.machine(),
        "repeats": pace.repeats,
        "seconds": time.monotonic() - began,
    }
    if ADK in kinds:
        facts["google-adk"] = ADK_VERSION
    print(report.table(every, measured))
    if chosen.details:
        print("\n" + report.details(every, measured))
    print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()))
    if chosen.json:
        chosen.json.write_text(json.dumps({"facts": facts, "rows": measured}, indent=1))
    if failures:
        sys.exit("\n".join(["These rows could not be measured:", *failures]))


if __name__ == "__main__":
    main()
