"""For stories of approvals: something that must not happen twice, and the messages of a human."""

from typing import Any

from polyport import App, LlmAgent, make_tool
from polyport.testing import ScriptedModel
from support.talk import Talk, answer

ASK = "adk_request_confirmation"


class Till:
    """Pays, and keeps a list of what it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> dict[str, int]:
        """Pay an amount."""
        self.paid.append(amount)
        return {"paid": amount}

    def tool(self, **options: Any) -> Any:
        return make_tool(self.pay, **{"require_confirmation": True, **options})

    @property
    def tools(self) -> list[Any]:
        return [self.tool()]


def on(till: Till, *steps: Any, database: str, **options: Any) -> tuple[App, ScriptedModel]:
    """An app with one agent on a script that pays from the till, on a database."""
    script = ScriptedModel(*steps)
    return App(LlmAgent(name="app", model=script, tools=till.tools), stores=database, **options), script


def requests(events: list[Any], name: str = ASK) -> list[dict[str, Any]]:
    """The calls to a human, as REST shows them."""
    parts = [p for e in events for p in (e.get("content") or {}).get("parts", [])]
    return [p["functionCall"] for p in parts if p.get("functionCall", {}).get("name") == name]


def approve(request: dict[str, Any], confirmed: bool = True, **more: Any) -> dict[str, Any]:
    return answer(request["id"], ASK, {"confirmed": confirmed, **more})


def together(*messages: dict[str, Any]) -> dict[str, Any]:
    """All the parts in one message."""
    return {"role": "user", "parts": [p for m in messages for p in m["parts"]]}


async def refused(talk: Talk, message: Any, status: int, *words: str) -> None:
    """The answer is refused before a run, by name of what is wrong, and leaves no trace in the session."""
    before = await talk.stored()
    for path in ("/run", "/run_sse"):
        response = await talk.client.post(path, json=talk.body(message))
        assert response.status == status, response.text
        for word in words:
            assert word in response.text
    assert await talk.stored() == before
