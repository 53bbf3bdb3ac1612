"""A chat of google-adk's RemoteA2aAgent with the agent at a URL. Run by `test_foreign_clients.py` with google-adk's Python.

Arguments: the base URL, and "legacy" or "extension" for the two ways in which it speaks. Each line of standard input is a
turn: text, or "yes" and "no" for the approval that was asked for last. Prints one line of JSON for each turn: what the session
then has of it, event by event, and the text that was streamed.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent  # noqa: E402
from google.adk.agents.run_config import RunConfig, StreamingMode  # noqa: E402
from google.adk.events import Event  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.genai import types  # noqa: E402

APPROVAL = "adk_request_confirmation"


async def main() -> None:
    url, way = sys.argv[1:]
    card = f"{url}/.well-known/agent-card.json"
    agent = RemoteA2aAgent(name="till", agent_card=card, use_legacy=way == "legacy")
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="chat", user_id="ann", session_id="s1")
    runner = Runner(app_name="chat", agent=agent, session_service=sessions)
    asked = ""
    for line in sys.stdin:
        said = line.strip()
        part = types.Part(text=said)
        if asked and said in ("yes", "no"):
            answer = types.FunctionResponse(id=asked, name=APPROVAL, response={"confirmed": said == "yes"})
            part, asked = types.Part(function_response=answer), ""
        message = types.Content(role="user", parts=[part])
        before = len(await stored(sessions))
        streamed = []
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        async for event in runner.run_async(user_id="ann", session_id="s1", new_message=message, run_config=config):
            asked = next((c.id for c in event.get_function_calls() if c.name == APPROVAL), asked)
            if event.partial:
                streamed += [part.text for part in event.content.parts if part.text]
        events = (await stored(sessions))[before:]
        print(json.dumps({"stored": [told(event) for event in events], "streamed": streamed}), flush=True)


async def stored(sessions: InMemorySessionService) -> list[Event]:
    return (await sessions.get_session(app_name="chat", user_id="ann", session_id="s1")).events


def told(event: Event) -> str:
    """An event in words."""
    parts = event.content.parts if event.content else []
    words = [p.text or (p.inline_data and "data " + p.inline_data.data.decode()) for p in parts]
    words += [f"call {call.name}" for call in event.get_function_calls()]
    words += [f"result {json.dumps(result.response)}" for result in event.get_function_responses()]
    return f"{event.author}: {' '.join(w for w in words if w)}{event.error_message or ''}"


asyncio.run(main())
