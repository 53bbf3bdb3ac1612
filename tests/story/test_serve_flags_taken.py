"""Flags of `polyport serve` for what a caller may take, for keys that sign agent cards, and for TLS of gRPC."""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from polyport.cli.main import main
from polyport.cli.options import ServeOptions
from polyport.cli.serve import build
from polyport.data.limits import MIB, Limits
from polyport.testing import connect
from polyport.wire import a2a_proto, a2a_sign
from support.processes import PATIENCE_S, Serving

AGENT = 'from polyport import App, LlmAgent\nroot_agent = LlmAgent(name="bot", model="demo")\n'
PEM = serialization.Encoding.PEM


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


@pytest.fixture
def tls(tmp_path: Path) -> tuple[str, str]:
    """The files of a certificate for localhost and its key."""
    return certified(tmp_path, "tls")


def certified(folder: Path, name: str, password: bytes = b"") -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, sealed))
    (folder / f"{name}.pem").write_bytes(made.public_bytes(PEM))
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def ask(url: str, body: bytes | None = None) -> tuple[int, Any, str]:
    """Status, JSON, and when to come back."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read()), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers.get("retry-after", "")


# ---- what a caller may take


def test_a_caller_that_asks_too_often_is_told_when_to_come_back(bot: Path):
    words = ("--caller-rate", "0.01", "--caller-burst", "2")
    with Serving(str(bot), *words, cwd=bot.parent, env={"POLYPORT_BODY_LIMIT": "1"}) as serving:
        assert ask(f"{serving.url}/run", b" " * (MIB + 1))[0] == 413
        assert ask(f"{serving.url}/list-apps")[0] == 200
        status, told, later = ask(f"{serving.url}/list-apps")
        assert status == 429 and "0.01 per second" in told["error"] and 0 < int(later) <= 100
        assert ask(f"{serving.url}/health")[0] == 200, "what is public does not count"


def test_the_limits_of_flags_and_of_the_environment_arrive(bot: Path, monkeypatch: pytest.MonkeyPatch):
    words = ["bot", "--caller-rate", "2.5", "--max-runs", "9", "--body-limit", "3"]
    monkeypatch.setenv("POLYPORT_CALLER_REQUESTS", "7")
    monkeypatch.setenv("POLYPORT_USER_RUNS", "4")
    with main.commands["serve"].make_context("serve", words) as ctx:
        given = dict(ctx.params)
    names = ("caller_rate", "caller_burst", "caller_requests", "user_runs", "max_runs")
    options = {name: given[name] for name in names}
    limits = build(ServeOptions(agents=[str(bot)], body_mib=given["body_limit"], **options)).limits
    assert (limits.caller_requests_per_s, limits.caller_requests, limits.user_runs) == (2.5, 7, 4)
    assert (limits.max_runs, limits.body_bytes, limits.caller_burst) == (9, 3 * MIB, Limits().caller_burst)
    assert build(ServeOptions(agents=[str(bot)])).limits == Limits(), "by default they are those of code"


def test_the_limits_of_yaml_have_the_names_of_code(tmp_path: Path):
    limits = "{ caller_requests_per_s: 5, caller_burst: 3, caller_requests: 8, user_runs: 2, max_runs: 6 }"
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/root_agent.yaml").write_text(
        f"name: bot\nmodel: demo\ninstruction: Help.\napp:\n  limits: {limits}\n"
    )
    found = build(ServeOptions(agents=[str(tmp_path / "bot")])).limits
    expected = Limits(caller_requests_per_s=5, caller_burst=3, caller_requests=8, user_runs=2, max_runs=6)
    assert found == expected


def test_what_would_have_no_effect_is_refused(bot: Path):
    code, _, err = polyport("serve", str(bot), "--caller-burst", "5")
    assert code == 1 and "add --caller-rate" in err
    code, _, err = polyport("serve", str(bot), "--caller-rate", "nan")
    assert code == 1 and "caller_requests_per_s is nan" in err, "which would be no limit at all"


@pytest.mark.parametrize("words", [["--caller-rate", "-1"], ["--user-runs", "x"], ["--body-limit", "0"]])
def test_numbers_that_make_no_sense_are_refused(bot: Path, words: list[str]):
    code, _, err = polyport("serve", str(bot), *words)
    assert code == 2 and words[0] in err


@pytest.mark.parametrize(
    "words",
    [
        *(["--caller-rate", "1"], ["--caller-rate", "1", "--caller-burst", "1"], ["--caller-requests", "1"]),
        *(["--user-runs", "1"], ["--max-runs", "1"], ["--body-limit", "1"]),
        *(["--card-key", "k"], ["--grpc-tls", "c", "k"]),
    ],
    ids=" ".join,
)
def test_an_app_of_ones_own_says_these_itself(bot: Path, words: list[str]):
    (bot / "agent.py").write_text(AGENT + "app = App(root_agent)\n")
    code, _, err = polyport("serve", str(bot), *words)
    assert code == 1 and "remove --" in err and words[0] in err


# ---- keys of agent cards


def test_T006_a_card_is_signed_with_the_keys_of_flags(bot: Path, tmp_path: Path):
    files = [str(tmp_path / f"{name}.jwk") for name in ("old", "new")]
    public: list[Any] = []
    for file in files:
        code, out, _ = polyport("a2a", "key", file)
        assert code == 0
        public += json.loads(out)["keys"]
    keys = ("--card-key", files[0], "--card-key", files[1])
    with Serving(str(bot), "--a2a", *keys, cwd=bot.parent) as serving:
        card = ask(f"{serving.url}/.well-known/agent-card.json")[1]
        assert [a2a_sign.verify(card, [key]) for key in public] == ["old", "new"]
        assert ask(f"{serving.url}/.well-known/jwks.json")[1]["keys"] == public
        code, out, _ = polyport("a2a", "key", str(tmp_path / "others.jwk"))
        (tmp_path / "public.json").write_text(json.dumps({"keys": public}))
        (tmp_path / "others.json").write_text(out)
        assert polyport("a2a", "card", serving.url, "--key", str(tmp_path / "public.json"))[0] == 0
        assert polyport("a2a", "card", serving.url, "--key", str(tmp_path / "others.json"))[0] == 1


def test_T006_files_without_a_private_key_are_refused_and_never_shown(bot: Path, tmp_path: Path, tls: tuple[str, str]):
    code, out, _ = polyport("a2a", "key", str(tmp_path / "good.jwk"))
    (tmp_path / "public.json").write_text(out)
    private = json.loads((tmp_path / "good.jwk").read_bytes())
    (tmp_path / "bare.json").write_text(json.dumps({**private, "d": ""}))
    (tmp_path / "nameless.json").write_text(json.dumps({**private, "kid": ""}))
    (tmp_path / "wrong.json").write_text(json.dumps({**private, "d": private["d"][:8]}))
    files = ["public.json", "bare.json", "nameless.json", "wrong.json", "missing.jwk", "tls.key"]
    for file in files:
        code, out, err = polyport("serve", str(bot), "--a2a", "--card-key", str(tmp_path / file))
        assert code == 1 and "agent cards" in err, file
        assert file in err or "'good' cannot sign" in err
        assert private["d"][:8] not in out + err and "PRIVATE" not in out + err


async def test_T006_the_same_in_yaml_is_an_object_by_code(bot: Path, tmp_path: Path, tls: tuple[str, str]):
    file = tmp_path / "yaml.jwk"
    public = json.loads(polyport("a2a", "key", str(file))[1])
    (bot / "agent.py").unlink()
    (bot / "edges.py").write_text(
        "from polyport.protocols.a2a.card import CardConfig\nfrom polyport.protocols.a2a.mount import A2a\n"
        f"a2a = A2a(card=CardConfig(keys=[{str(file)!r}]), grpc='127.0.0.1:0', grpc_tls={tls!r})\n"
    )
    text = "name: bot\nmodel: demo\ninstruction: Help.\napp:\n  protocols:\n    - rest\n    - "
    (bot / "root_agent.yaml").write_text(text + "edges.a2a\n")
    async with connect(build(ServeOptions(agents=[str(bot)]))) as client:
        card = (await client.get("/.well-known/agent-card.json")).json()
    assert a2a_sign.verify(card, public["keys"]) == "yaml"
    assert {"GRPC"} < {i["protocolBinding"] for i in card["supportedInterfaces"]}
    made = f"{{ name: polyport.protocols.a2a.mount.A2a, args: {{ card: {{ keys: [{file}] }} }} }}\n"
    (bot / "root_agent.yaml").write_text(text + made)
    code, _, err = polyport("serve", str(bot))
    assert code == 1 and "card is set for 'keys'" in err, "it would not be signed, and nobody would know"


# ---- gRPC over TLS


def test_T002_grpc_over_tls_by_flags(bot: Path, tls: tuple[str, str]):
    env = {"POLYPORT_GRPC_TLS": " ".join(tls)}
    with Serving(str(bot), "--a2a", "--grpc-port", "0", cwd=bot.parent, env=env) as serving:
        card = ask(f"{serving.url}/.well-known/agent-card.json")[1]
        urls = {i["protocolVersion"]: i["url"] for i in card["supportedInterfaces"] if i["protocolBinding"] == "GRPC"}
        assert urls["0.3"].startswith("https://")
        target = f"localhost:{urls['1.0'].rpartition(':')[2]}"
        trusted = grpc.ssl_channel_credentials(Path(tls[0]).read_bytes())
        with grpc.secure_channel(target, trusted) as channel:
            lists = channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")
            answer = json.loads(a2a_proto.to_json("lf.a2a.v1.ListTasksResponse", lists(b"", timeout=PATIENCE_S)))
        assert answer.get("totalSize", 0) == 0
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")(b"", timeout=PATIENCE_S)


def test_T002_files_that_are_no_certificate_and_its_key_are_refused(bot: Path, tmp_path: Path, tls: tuple[str, str]):
    certificate, key = tls
    other, locked = certified(tmp_path, "other")[1], certified(tmp_path, "locked", b"secret")
    for pair, told in (
        ((key, certificate), "must be a certificate and its private key"),
        ((certificate, other), "must be a certificate and its private key"),
        (locked, "has a password"),
        ((certificate, str(tmp_path / "none.key")), "none.key"),
        ((str(tmp_path), key), str(tmp_path)),
    ):
        code, out, err = polyport("serve", str(bot), "--a2a", "--grpc-port", "0", "--grpc-tls", *pair)
        assert code == 1 and "grpc_tls" in err and told in err, pair
        assert "PRIVATE" not in out + err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--card-key", "k"], "add --a2a"),
        (["--grpc-tls", "c", "k"], "add --a2a"),
        (["--a2a", "--grpc-tls", "c", "k"], "add --grpc-port"),
    ],
)
def test_flags_of_a2a_say_what_they_are_for(bot: Path, words: list[str], told: str):
    code, _, err = polyport("serve", str(bot), *words)
    assert code == 1 and words[-2 if words[-1] == "k" else -1] and told in err
