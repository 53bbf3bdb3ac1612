"""The size ratchet: files at most 400 lines, functions at most 60 lines and 8 parameters (self counts).

Run by `make check`. EXCEPTIONS lists what is larger, each with its reason and its present size; the list only shrinks: an entry
that is no longer needed, or a size that could be lower, fails too.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 8

EXCEPTIONS: dict[str, int] = {
    "src/polyport/app.py:__init__()": 13,  # the one place where an app is put together; all but the first are keywords
    "src/polyport/cluster/peers.py:__init__()": 9,  # the settings of a cluster; all but the first are keywords
}
"""`file`, `file:function` or `file:function()` (parameters) -> its present size."""


def measure(path: Path) -> dict[str, int]:
    """What is over a limit in one file."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    found: dict[str, int] = {}
    lines = text.count("\n")
    if lines > MAX_FILE:
        found[name] = lines
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                found[f"{name}:{node.name}"] = length
            arguments = node.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            if count > MAX_PARAMETERS:
                found[f"{name}:{node.name}()"] = count
    return found


def main() -> int:
    found: dict[str, int] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        found.update(measure(path))
    problems = [f"{k} is {v}, the limit is passed" for k, v in found.items() if v > EXCEPTIONS.get(k, 0)]
    for name, size in EXCEPTIONS.items():
        if found.get(name, 0) < size:
            problems.append(f"{name} is {found.get(name, 0)}: lower or drop its exception of {size}")
    for problem in problems:
        print(problem)
    print(f"sizes: {'ok' if not problems else f'{len(problems)} problems'}, {len(EXCEPTIONS)} exceptions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
