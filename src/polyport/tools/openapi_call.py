"""Sends the requests of OpenAPI tools: puts headers and credentials on them, and makes results of the answers.

Loaded by the toolset when the first request is to be sent, for it brings aiohttp with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from polyport.engine.hooks import ask
from polyport.errors import ConfigError, Unavailable
from polyport.ports.agent import ToolContext
from polyport.ports.trace import outgoing_trace
from polyport.tools.credentials import Credential, Headers, PostForm, Proof, checked_headers, together
from polyport.tools.openapi_operations import Operation
from polyport.tools.openapi_request import HttpRequest
from polyport.tools.openapi_result import Results
from polyport.tools.rest_call import Outgoing, RestClient, post_form
from polyport.version import VERSION

ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
AGENT = f"polyport/{VERSION}"


class HttpCaller:
    """The connections of one toolset. `headers` are sent with every request."""

    def __init__(self, timeout_s: float, max_bytes: int, headers: Headers) -> None:
        self._client = RestClient(timeout_s=timeout_s, max_bytes=max_bytes)
        self._headers = headers

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
        """How credentials reach their token endpoints."""
        return await post_form(self._client, url, form, headers)

    async def call(
        self, ctx: ToolContext, operation: Operation, credentials: Sequence[Credential], request: HttpRequest
    ) -> Any:
        """Send one request, a second time if the API refused the credentials and there are others; the result."""
        given = self._headers
        if callable(given):
            given = checked_headers(await ask(given, ctx), "the function headers=")
        proofs = await _proofs(ctx, credentials, self.post)
        answer = await self._client.send(outgoing(operation, request, given, proofs))
        if answer.status == 401 and await _renewable(ctx, credentials, proofs):
            proofs = await _proofs(ctx, credentials, self.post)
            answer = await self._client.send(outgoing(operation, request, given, proofs))
        secrets = together([*proofs, Proof(headers=dict(given))]).secrets
        return await Results(operation.name, operation.where, self._client.max_bytes).of(ctx, answer, secrets)

    async def aclose(self) -> None:
        await self._client.aclose()


async def _proofs(ctx: ToolContext, credentials: Sequence[Credential], post: PostForm) -> list[Proof]:
    return [await credential.proof(ctx, post) for credential in credentials]


async def _renewable(ctx: ToolContext, credentials: Sequence[Credential], proofs: Sequence[Proof]) -> bool:
    """Whether any credential may have a better proof now."""
    pairs = zip(credentials, proofs, strict=True)
    return any([await credential.refused(ctx, proof) for credential, proof in pairs])


def outgoing(operation: Operation, request: HttpRequest, given: Mapping[str, str], proofs: Sequence[Proof]) -> Outgoing:
    """The request with everything that is added to it. Of headers with one name the credential's wins, then `given`."""
    proof = together(proofs)
    own = {"Accept": ACCEPT, "User-Agent": AGENT, **outgoing_trace()}
    if request.media and not request.parts:
        own["Content-Type"] = request.media
    cookies = [*request.cookies, *(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in proof.cookies)]
    if cookies:
        own["Cookie"] = "; ".join(cookies)
    merged: dict[str, tuple[str, str]] = {}
    for headers in (own, request.headers, given, proof.headers):
        for name, value in headers.items():
            merged[name.lower()] = (name, value)
    query = [*request.query, *(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in proof.query)]
    url = f"{request.server}{request.path}" + (f"?{'&'.join(query)}" if query else "")
    return Outgoing(
        method=request.method,
        url=url,
        where=operation.where,
        headers=dict(merged.values()),
        body=request.body,
        parts=request.parts,
    )


async def fetch_document(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """The document at a URL, which may be redirected on its own host only. No credentials are sent.

    Unavailable, TimedOut, or ConfigError when it is too large.
    """
    client = RestClient(timeout_s=timeout_s, max_bytes=max_bytes)
    shown = url.partition("?")[0]
    where = f"the OpenAPI document {shown}"
    headers = {"Accept": "application/json, application/yaml, */*;q=0.5", "User-Agent": AGENT}
    try:
        answer = await client.send(Outgoing(method="GET", url=url, where=where, headers=headers), other_hosts=False)
    finally:
        await client.aclose()
    if answer.status != 200:
        raise Unavailable(f"{where} cannot be fetched: status {answer.status}")
    if answer.cut:
        raise ConfigError(f"{where} is larger than max_spec_bytes={max_bytes}")
    return answer.body
