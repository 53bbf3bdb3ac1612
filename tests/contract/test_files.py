"""Artifacts in a folder keep the contract, whatever lies in the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyport.data.content import Part
from polyport.errors import BadRequest, ConfigError, NotFound, Unavailable
from polyport.seams import Seams
from polyport.stores.files import FileArtifacts, folder_name
from polyport.testing.samples import KEY, Clock
from polyport.testing.suites import ArtifactStoreSuite

CHILD = """
import asyncio, sys
from polyport.stores.files import FileArtifacts
from polyport.data.content import Part
from polyport.data.session import SessionKey
async def main():
    store = FileArtifacts(sys.argv[1])
    for number in range(20):
        print(await store.save(SessionKey("app", "ann", "s1"), "\\u4f60\\u597d", Part(text="\\U0001f600")))
asyncio.run(main())
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestFileArtifacts(ArtifactStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path, seams: Seams) -> FileArtifacts:
        return FileArtifacts(tmp_path / "root", seams=seams)

    async def test_it_is_still_there_for_the_next_process(self, store: FileArtifacts, clock: Clock) -> None:
        await store.save(KEY, "a", Part(text="x"))
        await store.save(KEY, "a", Part(text="y"))
        await store.delete(KEY, "a", 2)
        again = FileArtifacts(store.root, seams=clock.seams())
        assert await again.load(KEY, "a") == Part(text="x")
        assert await again.save(KEY, "a", Part(text="z")) == 3

    async def test_nothing_lies_outside_the_root(self, store: FileArtifacts, tmp_path: Path) -> None:
        await store.save(KEY._replace(app="..", user="../..", id="/tmp"), "user:...", Part(text="x"))
        assert names_in(tmp_path) == ["root"]
        files = [path for path in store.root.rglob("*") if path.is_file()]
        assert sorted(path.name for path in files) == ["about.json", "content"]
        assert names_in(store.root / ".aside") == []

    async def test_links_that_lead_out_are_refused(self, store: FileArtifacts, tmp_path: Path) -> None:
        await store.save(KEY, "secret", Part(text="mine"))
        outside = FileArtifacts(tmp_path / "outside")
        await outside.save(KEY._replace(id="other"), "secret", Part(text="not yours"))
        sessions = store.root / "app" / "ann" / "sessions"
        (sessions / "other").symlink_to(tmp_path / "outside" / "app" / "ann" / "sessions" / "other")
        other = KEY._replace(id="other")
        for call in (store.load(other, "secret"), store.names(other), store.save(other, "x", Part(text="x"))):
            with pytest.raises(Unavailable, match="leads out"):
                await call
        target = tmp_path / "outside" / "app" / "ann" / "sessions" / "other" / "secret" / "1"
        (sessions / "s1" / "secret" / "9").symlink_to(target)
        (sessions / "s1" / "file").symlink_to(target.parent)
        with pytest.raises(NotFound):
            await store.load(KEY, "secret", 9)
        assert await store.load(KEY, "secret") == Part(text="mine")
        assert await store.names(KEY) == ["secret"]

    async def test_FR_016_a_disk_that_fails_costs_no_version(self, store: FileArtifacts, tmp_path: Path) -> None:
        await store.save(KEY, "a", Part(text="first"))
        folder = store.root / "app" / "ann" / "sessions" / "s1" / "a"
        folder.rename(tmp_path / "kept")
        folder.write_text("no folder")
        with pytest.raises(Unavailable, match="artifact store"):
            await store.save(KEY, "a", Part(text="second"))
        assert names_in(store.root / ".aside") == []
        folder.unlink()
        (tmp_path / "kept").rename(folder)
        assert await store.load(KEY, "a") == Part(text="first")
        assert await store.save(KEY, "a", Part(text="second")) == 2

    async def test_what_a_dead_process_left_is_swept_after_a_day(self, store: FileArtifacts, clock: Clock) -> None:
        left = store.root / ".aside" / "left"
        left.mkdir()
        os.utime(left, (clock.now, clock.now))
        FileArtifacts(store.root, seams=clock.seams())
        assert left.exists()
        clock.now += 86401
        FileArtifacts(store.root, seams=clock.seams())
        assert not left.exists()

    async def test_damaged_metadata_is_reported(self, store: FileArtifacts) -> None:
        await store.save(KEY, "a", Part(text="x"))
        (about,) = store.root.rglob("about.json")
        about.write_text("{")
        with pytest.raises(Unavailable, match="damaged"):
            await store.load(KEY, "a")

    async def test_FR_233_processes_share_a_folder_in_any_locale(self, store: FileArtifacts) -> None:
        command = [sys.executable, "-X", "utf8=0", "-c", CHILD, str(store.root)]
        env = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env) for _ in range(2)]
        numbers = [int(line) for child in children for line in child.communicate()[0].split()]
        assert sorted(numbers) == list(range(1, 41))
        assert await store.names(KEY) == ["你好"]
        assert await store.load(KEY, "你好", 40) == Part(text="😀")


def test_a_root_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        FileArtifacts(tmp_path / "file")


def test_folder_names_are_safe_everywhere() -> None:
    assert folder_name("report-1_a") == "report-1_a"
    assert folder_name("A/..") == "%41%2f%2e%2e"
    for name in ("你" * 255, "x" * 255, "%" * 100):
        assert len(folder_name(name)) <= 120
        assert folder_name(name) == folder_name(name).lower()


async def test_bad_requests_touch_nothing(tmp_path: Path) -> None:
    store = FileArtifacts(tmp_path)
    with pytest.raises(BadRequest):
        await store.save(KEY, "../x", Part(text="x"))
    assert names_in(tmp_path) == [".aside"]
