"""The app that the page of google-adk is tried against; started by test_adk_page.py.

Arguments: the folder of the page, a folder for evaluation files. Says `ready PORT` once it listens.
"""

import socket
import sys
from pathlib import Path

import uvicorn

from polyport import App, LlmAgent, Part, ToolContext, tool
from polyport.data.content import Content, FunctionCall, model_text
from polyport.data.model import ModelRequest, ModelResponse
from polyport.ports.model import OnPartial
from polyport.protocols.debug.mount import Debug
from polyport.protocols.evals.mount import Evals
from polyport.protocols.live.mount import Live
from polyport.protocols.web.mount import Web


class Obedient:
    """Calls the tool that the user named with the word behind it, and says what came out, in pieces."""

    name = "obedient"
    schema_with_tools = False

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        last = request.contents[-1].parts[-1]
        if last.function_response is None:
            name, _, word = (last.text or "").partition(" ")
            args = {"amount": int(word)} if word.isdigit() else {"what": word}
            return ModelResponse(
                content=Content(role="model", parts=[Part(function_call=FunctionCall(name=name, args=args))])
            )
        said = str((last.function_response.response or {}).get("result"))
        if on_partial is not None:
            for piece in said.split(" "):
                await on_partial(ModelResponse(content=model_text(piece + " "), partial=True))
        return ModelResponse(content=model_text(said + " "))

    async def aclose(self) -> None:
        pass


@tool(require_confirmation=True)
def send_money(amount: int) -> str:
    """Send money."""
    return f"sent {amount}"


async def write_note(ctx: ToolContext, what: str) -> str:
    """Write a note."""
    ctx.state["notes"] = [what]
    await ctx.save_artifact(f"{what}.txt", Part(text=what))
    return f"noted: {what}"


def main(page: str, evals: str) -> None:
    teller = LlmAgent(name="teller", model=Obedient(), description="Does as told.", tools=[send_money, write_note])
    debug = Debug()
    app = App(teller, protocols=["rest", Live(), Web(root=page), debug, Evals(root=evals)], plugins=debug.plugins)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ready {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app.asgi, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2])))
