"""Amazon Bedrock: Claude in an account of AWS, each request signed by botocore (extra `bedrock`).

Given to AnthropicModel as `base_url`, by users or by the registry (`bedrock/NAME`). Does InvokeModel and
InvokeModelWithResponseStream, whose frames it turns into the server-sent events of the Messages API. Other makers' models and
the Converse API are not its business. Never logs, shows or stores a secret.
"""

import os
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from yarl import URL

from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models.http import Call
from polyport.models.tokens import checked_url, checked_word, in_thread, refused
from polyport.wire.anthropic_clouds import MESSAGES, error_event, event_of, moved

VERSION = "bedrock-2023-05-31"
"""The `anthropic_version` of bodies; `config.extra` may say another."""
SERVICE = "bedrock"

_TODO = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK; or run `aws sso login`"
)


class AwsCredentials(Protocol):
    """Credentials of botocore, of any kind."""

    def get_frozen_credentials(self) -> Any: ...


class Bedrock:
    """A region of an account of AWS, whose Claude models are asked.

    `region` defaults to AWS_REGION, AWS_DEFAULT_REGION, and that of the profile; `profile` to AWS_PROFILE. `credentials`
    default to what botocore finds (environment, files, SSO, roles of the machine), with the first request. `api_key` is a key
    of Bedrock, by default AWS_BEARER_TOKEN_BEDROCK. `base_url` replaces the address of AWS, by default
    AWS_ENDPOINT_URL_BEDROCK_RUNTIME. ConfigError when botocore, the region or the profile is missing.
    """

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        credentials: AwsCredentials | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        if api_key and (profile or credentials):
            raise ConfigError("Bedrock takes an api_key, or a profile or credentials; not both")
        own = profile or credentials
        self._key = (api_key or ("" if own else os.environ.get("AWS_BEARER_TOKEN_BEDROCK", ""))).strip()
        self._profile = profile
        session = self._session()
        try:
            profiled = session.get_scoped_config().get("region")
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise ConfigError(f"Bedrock cannot read the configuration of AWS: {error}") from None
        found = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profiled
        if not found:
            raise ConfigError("Bedrock needs a region: set AWS_REGION, or Bedrock(region=)")
        self._region = checked_word(str(found), "the region of Bedrock")
        where = base_url or os.environ.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "").strip()
        self._url = checked_url(where or f"https://bedrock-runtime.{self._region}.amazonaws.com", "base_url of Bedrock")
        self._given = credentials
        self._credentials = credentials
        self._sent = ""
        """The session token that was sent last."""

    def __repr__(self) -> str:
        return f"Bedrock({self._region!r})"

    @property
    def address(self) -> str:
        return self._url

    async def sign(self, path: str, body: bytes, headers: dict[str, str]) -> Call:
        """See Endpoint. An `authorization` among `headers` is left as it is. ConfigError without credentials."""
        if path != MESSAGES:
            raise ConfigError("Bedrock serves the Messages API only: AnthropicModel(NAME, base_url=Bedrock())")
        given = {k: v for k, v in headers.items() if k not in ("anthropic-version", "anthropic-beta")}
        said = moved(body, VERSION, keep_stream=False, betas=headers.get("anthropic-beta", ""))
        if said.model.strip(".") == "":
            raise BadRequest(f"{said.model!r} is not the name of a model on Bedrock", "model")
        verb = "invoke-with-response-stream" if said.stream else "invoke"
        url = f"{self._url}/model/{quote(said.model, safe=':')}/{verb}"
        if "authorization" in given:
            added = {}
        elif self._key:
            added = {"authorization": f"Bearer {self._key}"}
        else:
            added = await in_thread(lambda: self._signature(url, said.body, given["content-type"]))
        return Call(URL(url, encoded=True), {**given, **added}, said.body)

    async def renew(self, call: Call, refusal: ModelError) -> bool:
        """When the credentials had ended: whether there are others now, in a file that was written since, say."""
        if self._key or self._given or "expired" not in str(refusal).lower():
            return False
        return await in_thread(self._replaced)

    def secrets(self) -> Sequence[str]:
        return [s for s in (self._key, self._sent) if s]

    def decoder(self) -> Callable[[bytes], bytes]:
        """From Bedrock's event stream to server-sent events."""
        return _Frames().feed

    def _signature(self, url: str, body: bytes, content_type: str) -> dict[str, str]:
        """The headers that sign a request. Blocks: credentials are read or refreshed, and the body is hashed."""
        if self._credentials is None:
            self._credentials = self._found()
        try:
            frozen = _frozen(self._credentials)
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise refused("AWS", error, _TODO) from None
        self._sent = frozen.token or ""
        request = import_module("botocore.awsrequest").AWSRequest(
            method="POST", url=url, data=body, headers={"content-type": content_type}
        )
        import_module("botocore.auth").SigV4Auth(frozen, SERVICE, self._region).add_auth(request)
        return {str(k).lower(): str(v) for k, v in request.headers.items()}

    def _replaced(self) -> bool:
        """Look the credentials up anew; whether they changed. Blocks."""
        old, new = self._credentials, self._found()
        self._credentials = new
        return old is None or _frozen(old) != _frozen(new)

    def _found(self) -> AwsCredentials:
        try:
            found = self._session().get_credentials()
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise refused("AWS", error, _TODO) from None
        if found is None:
            raise ConfigError(f"Bedrock finds no credentials of AWS: {_TODO}")
        return found

    def _session(self) -> Any:
        """A session of botocore, which remembers what it has read."""
        try:
            return import_module("botocore.session").Session(profile=self._profile)
        except ImportError:
            raise ConfigError("Bedrock needs botocore: pip install 'polyport[bedrock]'") from None


def _frozen(credentials: AwsCredentials) -> Any:
    return credentials.get_frozen_credentials()


class _Frames:
    """One stream of frames, fed as it comes."""

    def __init__(self) -> None:
        stream = import_module("botocore.eventstream")
        self._buffer = stream.EventStreamBuffer()
        bad_json = (msgspec.DecodeError, RecursionError)
        self._wrong = (stream.ParserError, struct.error, ValueError, KeyError, IndexError, *bad_json)

    def feed(self, chunk: bytes) -> bytes:
        """The server-sent events of the frames that are whole now. Nonsense is an `error` event, after what came before it."""
        out: list[bytes] = []
        try:
            self._buffer.add_data(chunk)
            for message in self._buffer:
                out.append(event_of(message.headers, message.payload))
        except self._wrong as error:
            out.append(error_event("MALFORMED_ANSWER", f"what came is no event stream ({type(error).__name__})"))
        return b"".join(out)
