"""Artifacts over REST, in memory and in a folder (spec rest 1.2, 1.4, 8 statements 93-99)."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from polyport import FunctionAgent, RunContext
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing.samples import together
from support.talk import Serve, Talk


@pytest.fixture(params=["memory", "files"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The folder under which everything must stay; None for memory."""
    return tmp_path / "in" / "here" if request.param == "files" else None


async def silent(ctx: RunContext) -> None:
    return None


@pytest.fixture
async def talk(serve: Serve, root: Path | None) -> AsyncGenerator[Talk]:
    if root is not None:
        root.mkdir(parents=True)
    stores = "memory:" if root is None else f"sqlite:///{root}/a.db"
    async with serve(FunctionAgent(name="app", function=silent), stores=stores) as talk:
        yield talk


async def save(talk: Talk, name: str, text: str = "x", **more: Any) -> dict[str, Any]:
    body = {"filename": name, "artifact": {"text": text}, **more}
    response = await talk.client.post(talk.path + "/artifacts", json=body)
    assert response.status == 200, response.text
    return response.json()


async def get(talk: Talk, tail: str = "") -> Any:
    response = await talk.client.get(f"{talk.path}/artifacts{tail}")
    assert response.status == 200, response.text
    return response.json()


async def refused(talk: Talk, method: str, tail: str, status: int, *words: str, **options: Any) -> None:
    response = await talk.client.request(method, f"{talk.path}/artifacts{tail}", **options)
    assert response.status == status, response.text
    assert set(response.json()) == {"error", "detail"} and "location" not in response.headers
    for word in words:
        assert word in response.json()["error"]


async def test_rest_93_no_artifacts_is_an_empty_list(talk: Talk):
    assert await get(talk) == []
    assert await get(talk.at("unknown")) == []


async def test_rest_94_versions_start_at_1_and_the_newest_is_the_default(talk: Talk):
    assert (await save(talk, "a.txt", "one"))["version"] == 1
    assert (await save(talk, "a.txt", "two"))["version"] == 2
    for tail in ("", "?version=2", "?version=0", "?version=", "?version=latest", "/versions/2", "/versions/latest"):
        assert await get(talk, "/a.txt" + tail) == {"text": "two"}
    for tail in ("?version=1", "/versions/1", "/versions/1/", "?version=01"):
        assert await get(talk, "/a.txt" + tail) == {"text": "one"}
    assert await get(talk, "/a.txt/versions") == [1, 2]
    assert await get(talk) == ["a.txt"]


@pytest.mark.parametrize("version", ["x", "1.0", "-1", "+1", "1e3", "\u00b2", "1" * 20, "0x1", " 1", "None"])
async def test_rest_95_a_version_that_is_no_number(talk: Talk, version: str):
    await save(talk, "a.txt")
    words = "version parameter must be an integer"
    await refused(talk, "GET", "/a.txt", 400, words, query={"version": version})
    await refused(talk, "GET", f"/a.txt/versions/{quote(version)}", 400, words)
    await refused(talk, "GET", f"/a.txt/versions/{quote(version)}/metadata", 400, words)


async def test_rest_96_what_is_missing_is_404_and_named(talk: Talk):
    await save(talk, "a.txt")
    await refused(talk, "GET", "/nope", 404, "nope")
    await refused(talk, "GET", "/nope/versions/1", 404, "nope")
    await refused(talk, "GET", "/nope/versions/latest/metadata", 404, "nope")
    await refused(talk, "GET", "/a.txt?version=7", 404, "a.txt", "7")
    await refused(talk, "GET", "/a.txt/versions/99999999999999999", 404, "99999999999999999")
    await refused(talk, "GET", "/a.txt/versions/7/metadata", 404, "a.txt", "7")
    assert await get(talk, "/nope/versions") == await get(talk, "/nope/versions/metadata") == []
    assert (await talk.client.get(talk.at("s1", "u2").path + "/artifacts/a.txt")).status == 404


async def test_FR_016_rest_97_user_artifacts_are_seen_in_all_sessions_of_the_user(talk: Talk):
    other, stranger = talk.at("s2"), talk.at("s1", "u2")
    await other.create()
    await stranger.create()
    await save(talk, "user:a.txt", "shared")
    await save(talk, "z.txt", "mine")
    await save(talk, "a.txt", "mine")
    await save(other, "user:a.txt", "newer")
    assert await get(talk) == ["a.txt", "user:a.txt", "z.txt"]
    assert await get(other) == ["user:a.txt"]
    assert await get(stranger) == []
    assert await get(talk, "/user:a.txt") == await get(other, "/user%3Aa.txt") == {"text": "newer"}
    assert await get(talk, "/user:a.txt?version=1") == {"text": "shared"}
    assert await get(talk, "/a.txt") == {"text": "mine"}
    await other.client.delete(other.path + "/artifacts/user:a.txt")
    assert await get(talk) == ["a.txt", "z.txt"]


HOSTILE = [
    "../x",
    "a/b",
    "..\\x",
    "a\\b",
    "..",
    ".",
    "\0",
    "a\0b",
    "a\nb",
    "\x7f",
    "a\x9fb",
    "user:",
    "user:..",
    "user:a/b",
]


@pytest.mark.parametrize("name", [*HOSTILE, "/etc/hosts", "C:\\x", "x" * 256, "", "project/versions/readme.txt"])
async def test_FR_007_rest_98_names_that_are_refused_in_a_body(talk: Talk, root: Path | None, name: str):
    body = {"filename": name, "artifact": {"text": "x"}}
    await refused(talk, "POST", "", 400, "name", json=body)
    assert await get(talk) == []
    only_inside(root)


@pytest.mark.parametrize("name", HOSTILE)
async def test_rest_98_names_that_are_refused_in_a_path(talk: Talk, root: Path | None, name: str):
    await save(talk, "a.txt")
    step = "/" + quote(name, safe="")
    await refused(talk, "DELETE", step, 400)
    for tail in ("", "/versions", "/versions/1", "/versions/metadata", "/versions/1/metadata"):
        await refused(talk, "GET", step + tail, 400)
    assert await get(talk) == ["a.txt"]
    only_inside(root)


@pytest.mark.parametrize(
    "tail", ["/../../s2", "/%2e%2e/s2", "/..%2f..%2fs2", "//a.txt", "/a.txt//versions", "/%ff", "/%zz"]
)
async def test_rest_98_paths_are_never_resolved(talk: Talk, tail: str):
    await save(talk, "a.txt")
    await refused(talk, "GET", tail, 400)
    await refused(talk, "DELETE", tail, 400)
    assert await get(talk) == ["a.txt"]


def only_inside(root: Path | None) -> None:
    """Nothing was written beside the store's own folder."""
    if root is not None:
        assert [p.name for p in root.parent.iterdir()] == ["here"]
        assert {p.name for p in root.iterdir()} <= {"a.db", "a.db-wal", "a.db-shm", "a.db.artifacts"}


@pytest.mark.parametrize(
    "name",
    ["versions", "metadata", "metadata.json", "Versions", "latest", "1", "%2e%2e", "a b.txt", "ü.txt", "CON", "~"],
)
async def test_FR_007_odd_names_are_independent(talk: Talk, name: str):
    step = "/" + quote(name, safe="")
    await save(talk, "project", "p")
    await save(talk, name, "odd")
    assert await get(talk, step) == {"text": "odd"}
    assert await get(talk, step + "/versions") == [1]
    assert (await get(talk, step + "/versions/1/metadata"))["version"] == 1
    assert await get(talk) == sorted(["project", name])
    await talk.client.delete(talk.path + "/artifacts/project")
    assert await get(talk, step) == {"text": "odd"}


async def test_rest_99_without_an_artifact_store_only_artifacts_are_503(serve: Serve):
    async with serve(FunctionAgent(name="app", function=silent), stores=Stores(MemorySessions())) as talk:
        words = "artifact service is not configured"
        for tail in ("", "/a", "/a/versions", "/a/versions/1", "/a/versions/metadata", "/a/versions/1/metadata"):
            await refused(talk, "GET", tail, 503, words)
        await refused(talk, "DELETE", "/a", 503, words)
        await refused(talk, "POST", "", 503, words, json={"filename": "a", "artifact": {"text": "x"}})
        assert (await talk.client.get("/list-apps")).status == 200
        assert await talk.run() == []


async def test_save_and_metadata(talk: Talk):
    text = await save(talk, "a.txt", customMetadata={"k": [1, 1.0, None]})
    data = base64.b64encode(bytes(range(256))).decode()
    image = {"inlineData": {"mimeType": "image/png", "data": data, "displayName": "dot"}}
    saved = await save(talk, "a.txt", artifact=image)
    assert {**text, "createTime": 0} == {
        "version": 1,
        "mimeType": "text/plain",
        "canonicalUri": "artifact://app/users/u1/sessions/s1/a.txt/versions/1",
        "createTime": 0,
        "customMetadata": {"k": [1, 1.0, None]},
    }
    assert (saved["version"], saved["mimeType"]) == (2, "image/png") and saved["createTime"] > 1.6e9
    assert await get(talk, "/a.txt") == image
    assert await get(talk, "/a.txt/versions/1/metadata") == text
    for tail in ("2", "latest", "0"):
        assert await get(talk, f"/a.txt/versions/{tail}/metadata") == saved
    assert await get(talk, "/a.txt/versions/metadata") == [text, saved]


async def test_snake_case_and_url_safe_bytes_are_accepted(talk: Talk):
    body = {
        "filename": "a",
        "artifact": {"inline_data": {"mime_type": "a/b", "data": "-_8"}},
        "custom_metadata": {"k": 1},
    }
    response = await talk.client.post(talk.path + "/artifacts", json=body)
    assert response.json()["customMetadata"] == {"k": 1}
    assert await get(talk, "/a") == {"inlineData": {"mimeType": "a/b", "data": "+/8="}}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "filename is required"),
        ({"filename": None, "artifact": {"text": "x"}}, "filename is required"),
        ({"filename": "a"}, "artifact is required"),
        ({"filename": "a", "artifact": None}, "artifact is required"),
        ({"filename": "a", "artifact": {}}, "part"),
        ({"filename": "a", "artifact": {"functionCall": {"name": "f"}}}, "part"),
        ({"filename": "a", "artifact": {"fileData": {"fileUri": "file:///etc/passwd"}}}, "part"),
        ({"filename": "a", "artifact": {"text": "x", "inlineData": {"data": "AA=="}}}, "both"),
        ({"filename": "a", "artifact": {"inlineData": {"data": "@@"}}}, "artifact.inlineData.data"),
        ({"filename": "a", "artifact": {"text": 5}}, "artifact.text"),
        ({"filename": 5, "artifact": {"text": "x"}}, "filename"),
        ({"filename": "a", "artifact": {"text": "x"}, "customMetadata": []}, "customMetadata"),
    ],
)
async def test_artifacts_that_cannot_be_saved(talk: Talk, body: dict[str, Any], word: str):
    await refused(talk, "POST", "", 400, word, json=body)
    assert await get(talk) == []


async def test_an_artifact_needs_its_session(talk: Talk):
    unknown = talk.at("unknown")
    await refused(unknown, "POST", "", 404, "unknown", json={"filename": "a", "artifact": {"text": "x"}})
    assert await get(unknown) == []


async def test_FR_016_parallel_saves_get_distinct_versions(talk: Talk):
    async def one(n: int) -> int:
        return (await save(talk, "a.txt", str(n)))["version"]

    assert sorted(await together(*[lambda n=n: one(n) for n in range(20)])) == list(range(1, 21))
    assert await get(talk, "/a.txt/versions") == list(range(1, 21))


async def test_delete_removes_all_versions_and_is_silent_the_second_time(talk: Talk):
    await save(talk, "a.txt")
    await save(talk, "a.txt")
    for _ in range(2):
        response = await talk.client.delete(talk.path + "/artifacts/a.txt")
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "0")
    await refused(talk, "GET", "/a.txt", 404)
    assert await get(talk) == await get(talk, "/a.txt/versions") == []
    assert (await save(talk, "a.txt"))["version"] == 3, "no version number is used twice"
