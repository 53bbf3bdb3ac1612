"""A chat of the 0.3 generation of a2a-sdk with the till at a URL. Run by `test_foreign_clients.py` with the Python of that SDK.

Arguments: the base URL, the transport as cards name it, and "stream" or "block". Prints one line of JSON for each step.
"""

import asyncio
import json
import sys

import grpc.aio
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import Message, Part, Role, Task, TaskIdParams, TaskQueryParams, TextPart
from a2a.utils.errors import ServerError


def show(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def texts(task: Task) -> list[str]:
    return [p.root.text for a in task.artifacts or [] for p in a.parts if p.root.kind == "text"]


class Chat:
    def __init__(self, client: object) -> None:
        self.client = client
        self.count = 0

    async def say(self, text: str, task: Task | None = None) -> Task:
        """Send a message, show what came, and give the task as it is then."""
        self.count += 1
        message = Message(
            message_id=f"m{self.count}",
            role=Role.user,
            parts=[Part(root=TextPart(text=text))],
            task_id=task.id if task else None,
            context_id=task.context_id if task else None,
        )
        frames = []
        async for found, update in self.client.send_message(message):
            task = found
            frames.append("task" if update is None else update.kind)
        show(said=text, state=task.status.state, texts=texts(task), frames=frames)
        return task

    async def follow(self, task: Task, begun: asyncio.Event) -> None:
        states = []
        async for found, _ in self.client.resubscribe(TaskIdParams(id=task.id)):
            states.append(found.status.state)
            begun.set()
        show(followed=states)


async def main() -> None:
    url, transport, way = sys.argv[1:]
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        show(name=card.name, version=card.protocol_version)
        config = ClientConfig(
            httpx_client=http,
            streaming=way == "stream",
            supported_transports=[transport],
            grpc_channel_factory=lambda target: grpc.aio.insecure_channel(target.removeprefix("http://")),
            use_client_preference=True,
        )
        chat = Chat(ClientFactory(config).create(card))
        await chat.say("hello")
        task = await chat.say("pay 5")
        await chat.say("yes", task)
        task = await chat.say("pay 7")
        task = await chat.client.get_task(TaskQueryParams(id=task.id, history_length=1))
        asked = next(p.root.data for p in task.status.message.parts if p.root.kind == "data")
        show(asked=asked["name"], history=len(task.history))
        async with asyncio.TaskGroup() as group:
            if way == "stream":
                begun = asyncio.Event()
                group.create_task(chat.follow(task, begun))
                await begun.wait()
            show(cancelled=(await chat.client.cancel_task(TaskIdParams(id=task.id))).status.state)
        try:
            await chat.client.get_task(TaskQueryParams(id="nope"))
        except (A2AClientError, ServerError, grpc.aio.AioRpcError) as error:
            show(error=f"{type(error).__name__}: {error}")
        await chat.client.close()


asyncio.run(main())
