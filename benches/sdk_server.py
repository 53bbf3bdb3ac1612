"""The least that answers A2A with a2a-sdk: no agent, no model, no session; what it says is fixed. In memory, JSON-RPC 1.0.

Started by `main.py` with the Python of the bench environment, for the rows of A2A. It has the apps, pieces and frames of the
other servers.
"""

import asyncio

import script
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Part, Task, TaskState, TaskStatus
from serving import arguments, serve
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


class Says(AgentExecutor):
    """A task, its pieces as they come, the whole text."""

    def __init__(self, app: str) -> None:
        self.app = app

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        status.timestamp.GetCurrentTime()
        history = [context.message]
        await event_queue.enqueue_event(
            Task(id=context.task_id, context_id=context.context_id, status=status, history=history)
        )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        begun = False
        async for piece in self.pieces(context.get_user_input()):
            await updater.add_artifact([Part(text=piece)], artifact_id="a", append=begun, last_chunk=False)
            begun = True
        whole = script.WHOLE if self.app == "sse" else script.ANSWER
        await updater.add_artifact([Part(text=whole)], artifact_id="a", append=False, last_chunk=True)
        await updater.complete()

    async def pieces(self, said: str):
        if self.app == "sse":
            for piece in script.PIECES:
                yield piece
        elif self.app == "slow":
            count, period = script.schedule(said)
            loop = asyncio.get_running_loop()
            due = loop.time()
            for _ in range(count):
                due += period
                await asyncio.sleep(max(0.0, due - loop.time()))
                yield script.PIECES[0]

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def routes(app: str) -> list[Route]:
    interface = AgentInterface(url=f"/a2a/{app}", protocol_binding="JSONRPC", protocol_version="1.0")
    card = AgentCard(
        name=app,
        description=app,
        version="1",
        supported_interfaces=[interface],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )
    handler = DefaultRequestHandler(Says(app), InMemoryTaskStore(), card)
    return create_jsonrpc_routes(handler, f"/a2a/{app}")


async def list_apps(request: object) -> JSONResponse:
    return JSONResponse([])


if __name__ == "__main__":
    found = [Route("/list-apps", list_apps), *(r for app in ("one", "sse", "slow") for r in routes(app))]
    serve(Starlette(routes=found), arguments().fd)
