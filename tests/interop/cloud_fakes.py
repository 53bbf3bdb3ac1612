"""Strict fakes of the three clouds on loopback: who asks is checked as the real ones check it, then what is asked.

Google: a token endpoint that verifies the signed assertion of a service account; tokens that end or are revoked. AWS: every
request's SigV4 signature is computed again by botocore from what came over the wire; answers stream in its binary frames.
Azure: a managed identity and both addresses of the API. What the models are asked is checked by the makers' own fakes.
"""

import base64
import json
import re
import struct
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic_fake
import anyio
import gemini_fake
import openai_fake
from aiohttp import web
from api_fake import serving
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

Body = dict[str, Any]


@dataclass
class Reply:
    """One answer. `chunks` are written one by one; with `cut` the connection is then dropped."""

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass
class Asked:
    """A request that was let in: `target` is the raw path with its query."""

    target: str
    headers: dict[str, str]
    body: Body


@dataclass
class Cloud:
    """What the fakes have in common. `refused` says why somebody was not let in."""

    replies: list[Any] = field(default_factory=list)
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    """The tokens that were given out."""
    valid: set[str] = field(default_factory=set)
    lifetime: int = 3600
    broken: int = 0
    """How many of the next token requests fail."""
    gate: anyio.Event | None = None
    """Token requests wait for it."""
    arrived: anyio.Event = field(default_factory=anyio.Event)
    """A token request came."""

    async def issue(self) -> str | None:
        """A new token; None when that fails this time."""
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.broken:
            self.broken -= 1
            return None
        self.issued.append(f"cloud-token-{len(self.issued) + 1}-{'x' * 20}")
        self.valid.add(self.issued[-1])
        return self.issued[-1]

    def revoke(self) -> None:
        self.valid.clear()

    def may(self, request: web.Request) -> bool:
        return request.headers.get("authorization", "").removeprefix("Bearer ") in self.valid

    def note(self, request: web.Request, body: Body) -> None:
        self.asked.append(Asked(request.raw_path, {k.lower(): v for k, v in request.headers.items()}, body))

    async def send(self, request: web.Request, reply: Any) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        for chunk in reply.chunks:
            await response.write(chunk)
        if reply.cut and request.transport is not None:
            request.transport.abort()
        return response

    def next(self) -> Any:
        assert self.replies, "a request that the test did not script"
        return self.replies.pop(0)


def refusal(status: int, body: Body, **headers: str) -> Reply:
    told = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Reply([json.dumps(body).encode()], status, told)


def claude(reply: Any, *, stream: bool) -> Any:
    """A message of the Anthropic fake as a whole answer or as server-sent events; anything else as it is."""
    if not isinstance(reply, dict):
        return reply
    return anthropic_fake.stream(*anthropic_fake.as_events(reply)) if stream else anthropic_fake.whole(reply)


def check_claude(body: Body, model: str, versions: tuple[str, ...]) -> None:
    """Refused for a body that a cloud's Claude would not take."""
    anthropic_fake.need("model" not in body, "model: Extra inputs are not permitted")
    anthropic_fake.need(body.get("anthropic_version") in versions, "anthropic_version: Field required")
    rest = {k: v for k, v in body.items() if k not in ("anthropic_version", "anthropic_beta")}
    anthropic_fake.check({**rest, "model": model})


# ---------------------------------------------------------------- Google

PROJECT, LOCATION = "my-project-1", "europe-west4"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PRIVATE = _KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
PUBLIC = _KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
EXPRESS = "express-key-0123456789"
_PLACE = rf"(?:/projects/{PROJECT}/locations/{LOCATION})?"
_GEMINI = re.compile(
    rf"/v1beta1(?P<place>{_PLACE})/publishers/google/models/(?P<model>[\w.-]+):(?P<verb>\w+)(?P<query>\?alt=sse)?"
)
_CLAUDE = re.compile(
    rf"/v1/projects/{PROJECT}/locations/{LOCATION}/publishers/anthropic/models/(?P<model>[\w.@-]+):(?P<verb>\w+)"
)
VERSIONS = ("vertex-2023-10-16", "bedrock-2023-05-31", "2026-10-21")
"""The last one is what the vendor's SDK says today."""


class Google(Cloud):
    """Vertex, with the token endpoint of Google."""

    def service_account(self) -> dict[str, str]:
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "k1",
            "private_key": PRIVATE,
            "client_email": "agent@my-project-1.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{self.url}/token",
            "universe_domain": "googleapis.com",
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return await self._token(request)
        target = request.raw_path
        found = _GEMINI.fullmatch(target) or _CLAUDE.fullmatch(target)
        if found is None:
            self.refused.append(f"no such place: {target}")
            return await self.send(request, gemini_fake.refusal(404, "NOT_FOUND", f"{target} was not found"))
        express = "place" in found.groupdict() and not found["place"]
        if request.headers.get("x-goog-api-key") != EXPRESS if express else not self.may(request):
            said = request.headers.get("authorization") or request.headers.get("x-goog-api-key")
            self.refused.append("stale token")
            return await self.send(request, gemini_fake.refusal(401, "UNAUTHENTICATED", f"bad credentials: {said}"))
        body = await request.json()
        body = body if target.startswith("/v1/") else gemini_fake.camel(body)
        self.note(request, body)
        stream = found["verb"] in ("streamGenerateContent", "streamRawPredict")
        try:
            if target.startswith("/v1/"):
                assert found["verb"] in ("rawPredict", "streamRawPredict")
                assert "anthropic-version" not in request.headers
                assert bool(body.get("stream")) is stream
                check_claude(body, found["model"], VERSIONS)
                reply = claude(self.next(), stream=stream)
            else:
                assert found["verb"] in ("generateContent", "streamGenerateContent")
                assert bool(found["query"]) is stream
                gemini_fake.Server([]).check(found["model"], body)
                reply = self.next()
        except (anthropic_fake.Refused, gemini_fake.Refused) as error:
            self.refused.append(str(error))
            reply = gemini_fake.refusal(400, "INVALID_ARGUMENT", str(error))
        return await self.send(request, reply)

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assertion = str(form["assertion"])
        claims = jwt.decode(assertion, certs=None, verify=False)
        assert crypt.RSAVerifier.from_string(PUBLIC).verify(
            assertion.rpartition(".")[0].encode(), base64.urlsafe_b64decode(assertion.rpartition(".")[2] + "==")
        )
        assert claims["aud"] == "https://oauth2.googleapis.com/token" and claims["exp"] > time.time()
        assert "https://www.googleapis.com/auth/cloud-platform" in claims["scope"].split()
        token = await self.issue()
        if token is None:
            return web.json_response({"error": "invalid_grant", "error_description": f"not {assertion}"}, status=400)
        return web.json_response({"access_token": token, "expires_in": self.lifetime, "token_type": "Bearer"})


# ---------------------------------------------------------------- AWS

REGION, ACCESS, SECRET = "eu-central-1", "AKIAFAKEFAKEFAKEFAKE", "fake/secret+key0123456789"
BEDROCK_KEY = "bedrock-api-key-0123456789"
_INVOKE = re.compile(r"/model/(?P<model>[^/?]+)/invoke(?P<stream>-with-response-stream)?")


def frame(payload: bytes, **headers: str) -> bytes:
    """One message of the event stream of AWS: lengths and their checksum, headers, payload, checksum of all."""
    head = b""
    for name, value in headers.items():
        key = ":" + name.replace("_", "-")
        head += struct.pack("!B", len(key)) + key.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
    lengths = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    said = lengths + struct.pack("!I", zlib.crc32(lengths)) + head + payload
    return said + struct.pack("!I", zlib.crc32(said))


def piece(event: Body, *, pretty: bool = False) -> bytes:
    """An event of the Messages API in a frame, padded as Bedrock does it."""
    data = base64.b64encode(json.dumps(event, indent=2 if pretty else None).encode()).decode()
    payload = json.dumps({"bytes": data, "p": "abcdefgh"}).encode()
    return frame(payload, event_type="chunk", content_type="application/json", message_type="event")


def fault(kind: str, text: str) -> bytes:
    return frame(
        json.dumps({"message": text}).encode(),
        exception_type=kind,
        content_type="application/json",
        message_type="exception",
    )


def frames(*pieces: bytes, cut: bool = False) -> Reply:
    return Reply(list(pieces), headers={"content-type": "application/vnd.amazon.eventstream"}, cut=cut)


class Aws(Cloud):
    """Bedrock, and the endpoint that gives credentials to a container. `sessions` are the session tokens that are good; None
    stands for none at all, as a user's own keys have."""

    sessions: set[str | None]

    def __init__(self, *replies: Any) -> None:
        super().__init__(list(replies))
        self.sessions = {None}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/container":
            return await self._container(request)
        raw = await request.read()
        why = self._stranger(request, raw)
        if why:
            self.refused.append(why)
            return await self.send(request, refusal(403, {"message": why}, x_amzn_errortype="ExpiredTokenException"))
        found = _INVOKE.fullmatch(request.raw_path)
        assert found is not None, request.raw_path
        body = json.loads(raw)
        self.note(request, body)
        try:
            anthropic_fake.need("stream" not in body, "stream: Extra inputs are not permitted")
            check_claude(body, found["model"], VERSIONS)
        except anthropic_fake.Refused as error:
            self.refused.append(str(error))
            return await self.send(request, refusal(400, {"message": str(error)}))
        reply = self.next()
        if isinstance(reply, dict):
            told = anthropic_fake.as_events(reply)
            reply = frames(*map(piece, told)) if found["stream"] else anthropic_fake.whole(reply)
        return await self.send(request, reply)

    def _stranger(self, request: web.Request, raw: bytes) -> str:
        """Why the request is not let in, or "". The signature is made again from what came."""
        said = request.headers.get("authorization", "")
        if said == f"Bearer {BEDROCK_KEY}":
            return ""
        parts = dict(re.findall(r"(Credential|SignedHeaders|Signature)=([^,\s]+)", said))
        scope = parts.get("Credential", "").split("/")
        if not said.startswith("AWS4-HMAC-SHA256 ") or len(scope) != 5:
            return f"Missing Authentication Token in {said}"
        date = request.headers["x-amz-date"]
        age = datetime.now(UTC) - datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(age) > timedelta(minutes=5):
            return f"Signature expired: {date}"
        session = request.headers.get("x-amz-security-token")
        if session not in self.sessions:
            return f"The security token included in the request is expired ({session})"
        names = parts["SignedHeaders"].split(";")
        assert {"host", "content-type", "x-amz-date"} <= set(names)
        again = AWSRequest(
            "POST",
            f"http://{request.headers['host']}{request.raw_path}",
            {name: request.headers[name] for name in names},
            raw,
        )
        again.context["timestamp"] = date
        auth = SigV4Auth(Credentials(ACCESS, SECRET, session), "bedrock", REGION)
        wanted = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
        if scope[0] != ACCESS or scope[2:] != [REGION, "bedrock", "aws4_request"] or parts["Signature"] != wanted:
            return f"The request signature we calculated does not match the signature you provided. ({said})"
        return ""

    async def _container(self, request: web.Request) -> web.Response:
        token = await self.issue()
        if token is None:
            return web.Response(status=500)
        self.sessions = {token}
        ends = datetime.now(UTC) + timedelta(seconds=self.lifetime)
        return web.json_response(
            {
                "AccessKeyId": ACCESS,
                "SecretAccessKey": SECRET,
                "Token": token,
                "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )


# ---------------------------------------------------------------- Azure

AZURE_KEY, MSI_SECRET = "azure-key-0123456789abcdef", "msi-secret"
_CHAT = re.compile(
    r"/openai/(?:v1/chat/completions(?:\?api-version=preview)?"
    r"|deployments/(?P<deployment>[\w.-]+)/chat/completions\?api-version=\d{4}-\d\d-\d\d(?:-preview)?)"
)


class AzureCloud(Cloud):
    """A resource of Azure OpenAI, and the managed identity of an app service."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/msi":
            assert request.headers["x-identity-header"] == MSI_SECRET
            assert request.query["resource"] == "https://cognitiveservices.azure.com"
            token = await self.issue()
            if token is None:
                return web.json_response({"statusCode": 400, "message": "no identity"}, status=400)
            ends = int(time.time()) + self.lifetime
            told = {"access_token": token, "expires_on": str(ends), "resource": "r", "token_type": "Bearer"}
            return web.json_response(told)
        if request.headers.get("api-key") != AZURE_KEY and not self.may(request):
            self.refused.append("stranger")
            said = request.headers.get("api-key") or request.headers.get("authorization")
            error = {"code": "401", "message": f"Access denied due to invalid subscription key {said}"}
            return await self.send(request, refusal(401, {"error": error}))
        assert not {"api-key", "authorization"} <= {k.lower() for k in request.headers}
        found = _CHAT.fullmatch(request.raw_path)
        assert found is not None, request.raw_path
        body = await request.json()
        self.note(request, body)
        try:
            openai_fake.check(body, set())
            assert found["deployment"] in (None, body["model"])
        except openai_fake.Refused as error:
            self.refused.append(str(error))
            return await self.send(request, openai_fake.refusal(400, str(error), error.param or None))
        return await self.send(request, self.next())


@asynccontextmanager
async def running(cloud: Any) -> AsyncIterator[Any]:
    """`cloud`, serving. At the end all that was scripted must have been asked for."""
    async with serving(cloud.handle) as url:
        cloud.url = url
        yield cloud
    assert not cloud.replies, f"{len(cloud.replies)} scripted replies were not asked for"
