"""No request that can be generated gets another user at what is alice's: schemathesis makes queries and bodies of every route
with a path of hers, bob sends them (spec rest 3.4).
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from polyport import App, LlmAgent
from polyport.protocols.rest.openapi import document
from support.access import CANARY, KEYED, protocols, world

URL = "http://localhost"
SENT = {"method", "url", "headers", "params", "json", "data"}


def made() -> dict[str, Any]:
    """The document of the routes of all protocols that are for users."""
    app = App(LlmAgent(name="a", model="demo"), protocols=protocols(Path()))
    shown = [r for r in app.asgi.routes if not r.public and not r.admin and r.pattern != "/mcp"]
    return document([replace(r, returns=None) for r in shown])


DOCUMENT = made()
AGAIN = ("/a2a", "/v1", "/{tenant}")
"""The handlers of other paths once more."""
LABELS = [
    f"{method.upper()} {path}"
    for path, item in DOCUMENT["paths"].items()
    for method, found in item.items()
    if "requestBody" in found or ("{" in path and not path.startswith(AGAIN))
]


async def answered(cases: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder)) as at:
            before = await at.belongings()
            for case in cases:
                at.touched.clear()
                with anyio.fail_after(20):
                    answer = await at.client.request(**request_of(case, at.params))
                assert CANARY not in answer.text and answer.status < 500, (answer.status, answer.text)
                if "/users/" in case.operation.path:
                    assert answer.status == 403 and not at.touched, (answer.status, answer.text)
            assert await at.belongings() == before


def request_of(case: Any, params: dict[str, str]) -> dict[str, Any]:
    """A generated case, of something that is alice's, sent by bob."""
    case.path_parameters = {name: params[name] for name in case.path_parameters or {}}
    if isinstance(case.body, dict) and case.operation.path.startswith("/run"):
        case.body |= {"appName": "a", "userId": "alice", "sessionId": "s1", "newMessage": {"parts": [{"text": "hi"}]}}
        case.body.pop("invocationId", None)
    options = {k: v for k, v in case.as_transport_kwargs(base_url=URL).items() if k in SENT}
    request = requests.Request(**options).prepare()
    headers = {k: v if isinstance(v, str) else v.decode("latin-1") for k, v in request.headers.items()}
    headers = {k: v for k, v in headers.items() if k.lower() not in ("content-length", "authorization")}
    assert request.url is not None and request.method is not None
    path = request.url.removeprefix(URL)
    return {
        "method": request.method,
        "path": path,
        "body": request.body,
        "headers": {**headers, **KEYED.headers("bob")},
    }


@pytest.mark.parametrize("label", LABELS)
def test_no_generated_request_gets_at_what_is_somebody_elses(label: str):
    operation = schemathesis.openapi.from_dict(DOCUMENT).find_operation_by_label(label)
    assert operation is not None
    cases: list[Any] = []

    def collect(case: Any) -> None:
        cases.append(case)

    once = settings(
        max_examples=4,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        once(given(operation.as_strategy(generation_mode=mode))(collect))()
    assert len(cases) > 1
    anyio.run(answered, cases)
