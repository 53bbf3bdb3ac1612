"""What triggers are sent: Pub/Sub push messages, CloudEvents (Eventarc), webhooks; what an agent is told of them (rest 7.5).

Used by `protocols/triggers`. Every function takes bytes of a stranger and gives an `Incoming`, or BadRequest. Pure.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec import UNSET, Struct, UnsetType

from polyport import codec
from polyport.codec import Data
from polyport.errors import BadRequest

PUBSUB, EVENTARC, WEBHOOK, SCHEDULE = "pubsub", "eventarc", "webhook", "schedule"
"""The sources."""
PUBLISHED = "google.cloud.pubsub.topic.v1.messagePublished"
"""The type of a CloudEvent that carries a Pub/Sub push message."""
STRUCTURED = "application/cloudevents+json"
MAX_NAME = 1024
"""How many characters an id or an origin may have."""
MAX_USER = 256

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
Header = Callable[[str], str]
"""The value of a header, "" without one."""


class Incoming(NamedTuple):
    """One message. `id` is "" when its sender gave none; `kind` is what it says that happened, if it does."""

    source: str
    origin: str
    id: str
    user: str
    text: str
    kind: str = ""


class PubsubMessage(Data, frozen=True, kw_only=True):
    data: bytes = b""
    attributes: dict[str, str] = {}
    message_id: str = ""
    publish_time: str = ""
    ordering_key: str = ""


class PushBody(Data, frozen=True, kw_only=True):
    """The body of a Pub/Sub push."""

    message: PubsubMessage = PubsubMessage()
    subscription: str = ""


class CloudEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in the structured form of CloudEvents. What else it has is for its transport."""

    data: Any | UnsetType = UNSET
    data_base64: bytes | UnsetType = UNSET
    id: str = ""
    source: str = ""
    specversion: str = ""
    subject: str = ""
    time: str = ""
    type: str = ""


def safe_user(name: str, otherwise: str) -> str:
    """A name of somebody outside as a user id: a slash is `--`, what no id may hold is gone, a long one is cut and told apart
    by a digest. `otherwise` when nothing is left."""
    user = _CONTROL.sub("", name.replace("/", "--")).strip()
    if user in ("", ".", ".."):
        return otherwise
    if len(user) > MAX_USER:
        digest = hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()[:32]
        user = f"{user[: MAX_USER - 33]}-{digest}"
    return user


def media_type(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


# ---- Pub/Sub


def pubsub(body: bytes) -> Incoming:
    """A push message of a subscription."""
    push = codec.decode(body, PushBody, unknown="drop")
    return Incoming(
        PUBSUB,
        _name(push.subscription, "subscription"),
        _name(push.message.message_id, "message.messageId"),
        safe_user(push.subscription, "pubsub-caller"),
        _pubsub_text(push),
    )


def _pubsub_text(push: PushBody) -> str:
    """`{"attributes"?, "data"?}` as JSON; data that is no text as `data_base64`."""
    message = push.message
    if not message.data and not message.attributes:
        raise BadRequest("failed to retrieve message content: the message has neither data nor attributes", "message")
    told: dict[str, Any] = {"attributes": message.attributes} if message.attributes else {}
    if message.data:
        told.update(_told(message.data))
    return codec.encode(told).decode()


def _told(data: bytes) -> dict[str, str]:
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


# ---- CloudEvents


def eventarc(header: Header, body: bytes) -> Incoming:
    """A CloudEvent, in structured or binary form, by its Content-Type."""
    kind = media_type(header("content-type"))
    if kind == STRUCTURED:
        event = codec.decode(body, CloudEvent, unknown="drop")
    elif kind.startswith("application/cloudevents"):
        raise BadRequest(f"{kind} is not accepted: send one event, as {STRUCTURED} or in binary form")
    else:
        event = _binary_event(header, body, kind)
    for name in ("id", "source", "specversion", "type"):
        if not getattr(event, name):
            raise BadRequest(f"the event has no {name}; in binary form it is the header ce-{name}", name)
    text = _pubsub_text(_push_inside(event)) if event.type == PUBLISHED else _event_text(event)
    return Incoming(
        EVENTARC,
        _name(event.source, "source"),
        _name(event.id, "id"),
        safe_user(event.source, "eventarc-caller"),
        text,
        _name(event.type, "type"),
    )


def _binary_event(header: Header, body: bytes, kind: str) -> CloudEvent:
    names = ("id", "source", "specversion", "subject", "time", "type")
    members: dict[str, Any] = {name: unquote(header(f"ce-{name}")) for name in names}
    if not body:
        return CloudEvent(**members)
    if not kind or kind == "application/json" or kind.endswith("+json"):
        return CloudEvent(data=codec.decode(body, object), **members)
    if kind.startswith("text/"):
        return CloudEvent(**_told(body), **members)
    return CloudEvent(data_base64=body, **members)


def _push_inside(event: CloudEvent) -> PushBody:
    data = event.data
    if event.data_base64 is not UNSET:
        return codec.decode(event.data_base64, PushBody, unknown="drop")
    if isinstance(data, str):
        return codec.decode(data, PushBody, unknown="drop")
    return codec.convert(data if data is not UNSET else {}, PushBody, unknown="drop")


def _event_text(event: CloudEvent) -> str:
    """The event as JSON, keys in order of the alphabet."""
    return codec.encode(event).decode()


# ---- webhooks


def webhook(name: str, header: Header, body: bytes) -> Incoming:
    """The body as it is: JSON or other text. The id is that of Standard Webhooks, of GitHub, or an idempotency key."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8 text; send JSON or text") from None
    if not text.strip():
        raise BadRequest("the body is empty; send JSON or text, for it is what the agent is told")
    id = header("webhook-id") or header("x-github-delivery") or header("idempotency-key")
    kind = _name(header("x-github-event"), "X-GitHub-Event")
    return Incoming(WEBHOOK, _name(name, "name"), _name(id, "webhook-id"), safe_user(name, WEBHOOK), text, kind)


def _name(value: str, field: str) -> str:
    if len(value) > MAX_NAME:
        raise BadRequest(f"{field} has {len(value)} characters; {MAX_NAME} are allowed", field)
    return value
