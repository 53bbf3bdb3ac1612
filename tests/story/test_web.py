"""A compiled page served beside the API (spec rest 9.1)."""

from pathlib import Path

import pytest

from polyport import App, LlmAgent
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard
from polyport.protocols.web.mount import Web
from polyport.testing import ScriptedModel
from polyport.testing.connect import connect

INDEX = '<html><head><base href="./"></head><body>page</body></html>'


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The folder of a page, with a secret beside it."""
    root = tmp_path / "page"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text(INDEX)
    (root / "main-AB12CD34.js").write_text("start()")
    (root / "assets" / "logo.svg").write_text("<svg/>")
    (root / "assets" / "mod.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "angular-material.css").write_text("a{}")
    (root / "leak.txt").symlink_to(tmp_path / "secret.txt")
    return root


def app(page: Path, **options: str) -> App:
    return App(LlmAgent(name="a", model=ScriptedModel()), protocols=["rest", Web(root=page, **options)])


async def test_rest_126_the_root_leads_to_the_page_which_learns_where_the_api_is(page: Path) -> None:
    async with connect(app(page)) as client:
        start, bare = await client.get("/"), await client.get("/dev-ui")
        assert (start.status, start.headers["location"]) == (302, "/ui/")
        assert (bare.status, bare.headers["location"]) == (301, "/dev-ui/")
        told = await client.get("/ui/assets/config/runtime-config.json")
        assert told.json() == {"backendUrl": "", "telemetry": False}
        assert told.headers["cache-control"] == "no-store"
        below = await client.get("/api/ui/assets/config/runtime-config.json")
        assert below.json()["backendUrl"] == "http://localhost/api"
    async with connect(app(page, backend_url="https://api.test/x", logo_text="Mine")) as client:
        told = (await client.get("/dev-ui/assets/config/runtime-config.json")).json()
        assert told["backendUrl"] == "https://api.test/x" and told["logo"] == {"text": "Mine", "imageUrl": ""}


async def test_files_have_their_types_and_their_time_in_caches(page: Path) -> None:
    async with connect(app(page)) as client:
        script = await client.get("/ui/main-AB12CD34.js")
        assert (script.text, script.headers["content-type"]) == ("start()", "text/javascript; charset=utf-8")
        assert "immutable" in script.headers["cache-control"]
        named = await client.get("/ui/angular-material.css")
        assert named.headers["cache-control"] == "no-cache", "a word is no hash"
        logo = await client.get("/dev-ui/assets/logo.svg")
        assert (logo.headers["content-type"], logo.headers["cache-control"]) == ("image/svg+xml", "no-cache")
        assert (await client.get("/ui/assets/mod.wasm")).headers["content-type"] == "application/wasm"
        for path in ("/ui/", "/ui/deep/link", "/dev-ui/deep"):
            index = await client.get(path)
            place = path.split("/")[1]
            assert f'<base href="/{place}/">' in index.text and "page" in index.text
            assert index.headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in index.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/ui/none.js",
        "/ui/leak.txt",
        "/ui/../secret.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui/..%2fsecret.txt",
        "/ui/assets/none.css",
        "/ui/" + "%C3%A9" * 200 + ".js",
        "/ui/%00.js",
        "/ui/" + "deep/" * 1500 + "x.js",
    ],
)
async def test_nothing_outside_the_folder_is_served_and_what_is_missing_is_404(page: Path, path: str) -> None:
    async with connect(app(page)) as client:
        answer = await client.get(path)
        assert answer.status in (400, 404)
        assert "secret" not in answer.text.replace("secret.txt", "")


async def test_a_page_behind_a_proxy_is_told_the_address_that_the_browser_knows(page: Path) -> None:
    made = App(
        LlmAgent(name="a", model=ScriptedModel()),
        protocols=["rest", Web(root=page)],
        guard=Guard(["*"], ["*"], trusted_proxy=True),
    )
    async with connect(made) as client:
        headers = {"x-forwarded-host": "ui.test", "x-forwarded-proto": "https"}
        told = await client.get("/api/ui/assets/config/runtime-config.json", headers=headers)
        assert told.json()["backendUrl"] == "https://ui.test/api"
        headers["x-forwarded-prefix"] = "/agents"
        told = await client.get("/ui/assets/config/runtime-config.json", headers=headers)
        assert told.json()["backendUrl"] == "https://ui.test/agents"
        assert (await client.get("/", headers=headers)).headers["location"] == "/agents/ui/"
        assert '<base href="/agents/ui/">' in (await client.get("/ui/", headers=headers)).text


def test_a_folder_without_a_page_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no index\.html"):
        app(tmp_path)
