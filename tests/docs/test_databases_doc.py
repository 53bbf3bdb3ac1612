"""The page on databases: what it shows runs, what it names is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polyport.stores.event_cache import CACHE_BYTES
from polyport.stores.open import open_stores
from polyport.stores.postgres_url import CONNECT_S, POOL_SIZE, STATEMENT_S, parse

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "databases.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_blocks_of_the_page_on_databases_run_as_pasted(code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_settings_and_defaults_are_those_of_the_code() -> None:
    for name, default in (("pool_size", POOL_SIZE), ("connect_timeout", CONNECT_S), ("statement_timeout", STATEMENT_S)):
        assert re.search(rf"^\| `{name}` \| .* \| {default:g} \|$", PAGE, re.MULTILINE), name
    given = parse("postgresql://me@db/x?pool_size=3&connect_timeout=1.5&statement_timeout=2&sslmode=require")
    assert given[2:] == (3, 1.5, 2) and given.dsn == "postgresql://me@db/x?sslmode=require"
    assert f"{CACHE_BYTES >> 20} MB" in PAGE


def test_the_urls_of_the_table_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    urls = re.findall(r"`((?:memory|sqlite|postgresql):[^`]*)`", PAGE.partition("```")[0])
    assert len(urls) == 3
    for url in urls:
        open_stores(url)
