"""Identity by words: `polyport serve --auth ...`, its environment, and `polyport auth key`."""

import json
import os
import stat
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from polyport import App
from polyport.cli.identity import Identity
from polyport.cli.main import main
from polyport.cli.words import make_app
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard
from polyport.testing import connect
from support.identity import Issuer
from support.processes import Process, Serving

AGENT = "from polyport import App, LlmAgent\nroot_agent = LlmAgent(name='bot', model='demo')\n"
OWN = """
from polyport.auth.combine import FunctionAuth
def who(credentials):
    return next(iter(credentials.values("x-user")), None)
app = App(root_agent, auth=FunctionAuth(who))
"""


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


async def status(app: App, **headers: str) -> int:
    async with connect(app) as client:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await client.get("/apps/bot/users/ann/sessions", headers=sent)).status


def served(bot: Path, *, guard: Guard | None = None, given: tuple[str, ...] = (), **words: Any) -> App:
    return make_app([str(bot)], guard=guard, identity=Identity(**words), given=given)


# ---- keys


async def test_a_key_is_made_kept_as_a_hash_and_lets_its_user_in(bot: Path, tmp_path: Path):
    file = tmp_path / "keys.yaml"
    code, key, told = polyport("auth", "key", "--user", "ann", "--file", str(file))
    assert code == 0 and str(file) in told
    key = key.strip()
    assert key.startswith("pp_") and len(key) > 40 and key not in told and key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(file.read_text().rstrip("\n"))  # by an editor
    _, root, _ = polyport("auth", "key", "--user", "root", "--role", "admin", "--file", str(file))
    app = served(bot, auth=[f"keys:{file}"])
    assert await status(app) == 401
    assert await status(app, x_api_key=key) == 200
    assert await status(app, authorization=f"Bearer {root.strip()}") == 200, "an admin may act as ann"
    assert await status(app, authorization=f"Bearer {key}x") == 401


@pytest.mark.parametrize("text", ["[]\n", '[{"hash": "x"}]', "keys:\n"])
def test_a_file_to_which_no_line_can_be_added_stays_as_it_was(tmp_path: Path, text: str):
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    code, out, err = polyport("auth", "key", "--user", "ann", "--file", str(file))
    assert code == 1 and out == "" and str(file) in err and file.read_text() == text


async def test_without_a_file_the_line_to_add_is_told(bot: Path, monkeypatch: pytest.MonkeyPatch):
    _, key, told = polyport("auth", "key", "--user", "ann")
    line = told.strip().splitlines()[-1]
    assert json.loads(line.removeprefix("- "))["user"] == "ann"
    monkeypatch.setenv("KEYS", line)
    assert await status(served(bot, auth=["keys-env:KEYS"]), x_api_key=key.strip()) == 200


def test_keys_that_cannot_be_made_are_refused(tmp_path: Path):
    assert polyport("auth", "key")[0] == 2
    for args in (["--user", " "], ["--user", "a\nb"], ["--user", "a", "--file", str(tmp_path / "none/keys")]):
        code, out, err = polyport("auth", "key", *args)
        assert code == 1 and err.startswith("Error: ") and out == "", args


# ---- the grammar


async def test_the_header_of_a_proxy(bot: Path):
    app = served(bot, auth=["header:X-User"], trusted_proxy_cidr=["127.0.0.0/8"])
    assert await status(app, x_user="ann") == 200
    assert await status(app, x_user="bob") == 403
    stranger = served(bot, auth=["header:X-User"], trusted_proxy_cidr=["10.0.0.0/8"])
    assert await status(stranger, x_user="ann") == 401


async def test_authorize_open_lets_everybody_with_a_name_act_as_anybody(bot: Path):
    app = served(bot, auth=["header:X-User"], trusted_proxy_cidr=["127.0.0.1"], authorize="open")
    assert await status(app, x_user="bob") == 200
    assert await status(app) == 401


async def test_tokens_and_several_kinds_at_once(bot: Path, tmp_path: Path):
    issuer = Issuer()
    (tmp_path / "jwks.json").write_text(json.dumps(issuer.jwks))
    jwt = f"jwt:{issuer.url},polyport,jwks={tmp_path / 'jwks.json'},user=email,roles=groups"
    app = served(bot, auth=[jwt, "header:X-User"], trusted_proxy_cidr=["127.0.0.1"])
    assert await status(app, authorization=f"Bearer {issuer.token(email='ann')}") == 200
    assert await status(app, authorization=f"Bearer {issuer.token(email='bob')}") == 403
    assert await status(app, authorization=f"Bearer {issuer.token(email='bob', groups=['admin'])}") == 200
    assert await status(app, x_user="ann") == 200
    assert await status(app) == 401


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"auth": ["password:x"]}, "keys:FILE"),
        ({"auth": ["keys"]}, "keys:FILE"),
        ({"auth": ["keys:a,b"]}, "keys:FILE"),
        ({"auth": ["keys:/nowhere/keys.yaml"]}, "/nowhere/keys.yaml"),
        ({"auth": ["keys-env:NOT_SET_HERE"]}, "NOT_SET_HERE"),
        ({"auth": ["jwt:https://i.test"]}, "jwt:ISSUER,AUDIENCE"),
        ({"auth": ["jwt:http://i.test,me"]}, "https"),
        ({"auth": ["jwt:https://i.test,me,prefix=x"]}, "jwt:ISSUER,AUDIENCE"),
        ({"auth": ["header:X-User"]}, "--trusted-proxy-cidr"),
        ({"auth": ["header:X User"], "trusted_proxy_cidr": ["10.0.0.1"]}, "X User"),
        ({"auth": ["header:X-User"], "trusted_proxy_cidr": ["10.0.0.1/8"]}, "10.0.0.1/8"),
        ({"auth": ["google:me"]}, "google:AUDIENCE,EMAIL"),
        ({"auth": ["none", "iap:me"]}, "'none'"),
        ({"authorize": "strict"}, "--auth"),
        ({"trusted_proxy_cidr": ["10.0.0.0/8"]}, "--auth"),
        ({"authorize": "maybe"}, "strict or open"),
    ],
)
def test_words_that_make_no_sense_say_what_would(bot: Path, words: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        served(bot, **words)


def test_googles_presets_are_words(bot: Path):
    for word in ("google:me,a@example.test,b@example.test", "iap:me"):
        assert served(bot, auth=[word]).asgi.guard.auth is not None


async def test_the_environment_says_the_same_also_from_a_file_beside_the_agent(
    bot: Path, monkeypatch: pytest.MonkeyPatch
):
    assert await status(served(bot)) == 200
    for name in ("POLYPORT_AUTH", "POLYPORT_TRUSTED_PROXY_CIDR", "POLYPORT_AUTHORIZE"):
        monkeypatch.setenv(name, "x")  # so that what the file sets is gone after the test
        monkeypatch.delenv(name)
    (bot / ".env").write_text("POLYPORT_AUTH=header:X-User\nPOLYPORT_TRUSTED_PROXY_CIDR='10.0.0.0/8 127.0.0.1'\n")
    app = served(bot)
    assert (await status(app), await status(app, x_user="ann"), await status(app, x_user="bob")) == (401, 200, 403)
    os.environ["POLYPORT_AUTHORIZE"] = "open"
    assert await status(served(bot), x_user="bob") == 200
    assert await status(served(bot, auth=["none"])) == 200, "a flag wins"


# ---- an App of the user's own


async def test_an_app_keeps_its_own_auth_whatever_guard_it_is_served_behind(
    bot: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (bot / "agent.py").write_text(AGENT + OWN)
    monkeypatch.setenv("POLYPORT_AUTH", "iap:x")
    app = served(bot, guard=Guard(bind_host="127.0.0.1"))
    assert await status(app, host="localhost") == 401
    assert await status(app, host="localhost", x_user="ann") == 200
    assert await status(app, host="evil.test", x_user="ann") == 403
    assert "POLYPORT_AUTH is not used" in caplog.text
    for flag in ("--auth", "--authorize", "--trusted-proxy-cidr"):
        with pytest.raises(ConfigError, match=flag):
            served(bot, auth=["iap:x"], given=(flag,))


async def test_an_app_without_auth_is_served_behind_that_of_the_words(bot: Path):
    (bot / "agent.py").write_text(AGENT + "app = App(root_agent)\n")
    app = served(bot, guard=Guard(), auth=["header:X-User"], trusted_proxy_cidr=["127.0.0.1"], given=("--auth",))
    assert await status(app, host="localhost") == 401
    assert await status(app, host="localhost", x_user="ann") == 200


# ---- real processes


def test_FR_195_with_authentication_a_server_may_be_reached_by_others(bot: Path, tmp_path: Path):
    file = tmp_path / "keys.yaml"
    _, key, _ = polyport("auth", "key", "--user", "ann", "--file", str(file))
    with Serving(str(bot), "--host", "0.0.0.0", "--auth", f"keys:{file}") as serving:
        assert serving.says("^Try, with a credential")
        assert not serving.err.find("everybody")

        def status(path: str, **headers: str) -> int:
            url = f"http://127.0.0.1:{serving.port}{path}"
            try:
                with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        assert status("/health") == 200 and status("/list-apps") == 401
        key = key.strip()
        assert status("/apps/bot/users/ann/sessions", authorization=f"Bearer {key}") == 200
        assert status("/apps/bot/users/bob/sessions", authorization=f"Bearer {key}") == 403
        assert not serving.err.find(key), "a key is in no log"


def test_a_mistake_in_the_words_is_one_line_before_anything_listens(bot: Path):
    with Process("serve", str(bot), "--auth", "keys:nowhere.yaml", "--port", "0") as process:
        assert process.ended() == 1
        assert "nowhere.yaml" in process.err.text and "Traceback" not in process.err.text and not process.out.text
