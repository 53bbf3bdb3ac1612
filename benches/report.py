"""The table: medians, the ratio with its spread, the budget and whether it is met. Used by `main.py`."""

import os
import platform
import statistics
from typing import Any

from rows import Numbers, Row
from servers import ADK, CEILING, OURS, SDK

Samples = dict[str, list[Numbers]]
"""Server -> one entry per repeat."""


def values(row: Row, samples: Samples, kind: str) -> list[float]:
    return [numbers[row.metric] for numbers in samples.get(kind, [])]


def ratios(row: Row, samples: Samples) -> list[float]:
    """How many times better Polyport is, one per pair of neighbouring measurements."""
    pairs = zip(values(row, samples, ADK), values(row, samples, OURS), strict=False)
    return [(b / a if row.more_is_better else a / b) for a, b in pairs if a and b]


def errors(samples: Samples, kind: str) -> int:
    return int(sum(numbers["errors"] for numbers in samples.get(kind, [])))


def verdict(row: Row, samples: Samples) -> str:
    """By the ratio if both were measured, else by the absolute limit; an error of ours is never ok."""
    ours = values(row, samples, OURS)
    if not ours:
        return ""
    if count := errors(samples, OURS):
        return f"{count} ERRORS"
    both = ratios(row, samples)
    if both and row.ratio:
        return "ok" if statistics.median(both) >= row.ratio else "missed"
    if row.limit and not both:
        value = statistics.median(ours)
        return "ok" if (value >= row.limit if row.more_is_better else value <= row.limit) else "missed"
    return ""


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _cell(row: Row, samples: Samples, kind: str) -> str:
    found = values(row, samples, kind)
    if not found:
        return ""
    bad = errors(samples, kind)
    return _number(statistics.median(found)) + (f" ({bad} err)" if bad else "")


def _budget(row: Row) -> str:
    parts = [f"{row.ratio:g}x"] if row.ratio else []
    if row.limit:
        parts.append(f"{'>=' if row.more_is_better else '<='} {row.limit:g}")
    return "; ".join(parts)


def line(row: Row, samples: Samples) -> list[str]:
    found = ratios(row, samples)
    spread = f"{_number(statistics.median(found))}x ({_number(min(found))}..{_number(max(found))})" if found else ""
    cells = [_cell(row, samples, kind) for kind in (ADK, OURS, CEILING, SDK)]
    title = f"{row.title} (SQLite)" if row.key.startswith("sqlite/") else row.title
    return [title, row.unit, *cells, spread, _budget(row), verdict(row, samples)]


def table(rows: list[Row], measured: dict[str, Samples]) -> str:
    """Markdown that is also easy to read on a terminal."""
    head = ["what", "unit", "google-adk", "Polyport", "bare uvicorn", "bare a2a-sdk", "ratio (min..max)", "budget", ""]
    return _markdown(head, [line(row, measured[row.key]) for row in rows if row.key in measured])


def details(rows: list[Row], measured: dict[str, Samples]) -> str:
    """Every number of every server, medians."""
    names = ["per_second", "frames_per_second", "p50_ms", "p99_ms", "cpu_ms", "errors"]
    lines: list[list[str]] = []
    for row in rows:
        for kind, found in measured.get(row.key, {}).items():
            medians = [statistics.median(n[name] for n in found) if name in found[0] else None for name in names]
            lines.append([row.key, kind, *["" if m is None else _number(m) for m in medians]])
    return _markdown(["row", "server", "req/s", "events/s", "p50 ms", "p99 ms", "CPU ms", "errors"], lines)


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(r[n]) for r in [head, *lines]) for n in range(len(head))]
    texts = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in [head, *lines]]
    return "\n".join([texts[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *texts[1:]])


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
