"""What processes ask each other, and what they call to each other, by core messages that may get lost.

Used by the cluster. Nothing depends on an answer but how soon something is noticed, or that nothing is done twice in vain.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from msgspec import Struct

from polyport.cluster.jetstream import Message
from polyport.cluster.link import Link
from polyport.codec import encode
from polyport.errors import Unavailable

log = logging.getLogger("polyport.cluster")
ANSWER_S = 1.0
Which = Callable[[Sequence[str]], Sequence[str]]


class _Question(Struct, frozen=True):
    asks: str
    kind: str
    ids: list[str]


class _Answer(Struct, frozen=True):
    name: str
    ids: list[str]


class Questions:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._holds: dict[str, Which] = {}
        self._heard: set[Callable[[], None]] = set()

    @asynccontextmanager
    async def answered(self) -> AsyncGenerator[None]:
        """Answer those of others, inside the block."""
        async with self._link.jetstream.listening(self._link.subjects.ask, self._asked):
            yield

    def holds(self, kind: str, which: Which) -> None:
        self._holds[kind] = which

    async def held(self, kind: str, ids: Sequence[str]) -> set[str]:
        """Which of these others hold; of one that does not answer within a second, nobody knows."""
        link = self._link
        waiting = await link.replicas.names() - {link.name}
        found: set[str] = set()
        all_said = anyio.Event()

        def heard(message: Message) -> None:
            answer = msgspec.json.decode(message.data, type=_Answer)
            found.update(answer.ids)
            waiting.discard(answer.name)
            if not waiting:
                all_said.set()

        if waiting and ids:
            inbox = link.jetstream.inbox()
            async with link.jetstream.listening(inbox, heard):
                question = encode(_Question(link.name, kind, list(ids)))
                await link.jetstream.publish(link.subjects.ask, question, reply=inbox)
                with anyio.move_on_after(ANSWER_S):
                    await all_said.wait()
        return found

    def _asked(self, message: Message) -> None:
        question = msgspec.json.decode(message.data, type=_Question)
        if question.asks != self._link.name:
            which = self._holds.get(question.kind)
            ids = list(which(question.ids)) if which is not None else []
            self._link.start(self._link.jetstream.publish, message.reply, encode(_Answer(self._link.name, ids)))

    def ring(self, topic: str) -> None:
        try:
            name = self._link.name.encode()
            self._link.start(self._link.jetstream.publish, self._link.subjects.ring(topic), name)
        except Unavailable as error:
            log.debug("%s is not told: %s", topic, error)

    @asynccontextmanager
    async def listening(self, topic: str, heard: Callable[[], None]) -> AsyncGenerator[None]:
        def rung(message: Message) -> None:
            if message.data != self._link.name.encode():
                heard()

        def again() -> None:  # a name of its own, should two listen with the same function
            heard()

        self._heard.add(again)
        try:
            async with self._link.jetstream.listening(self._link.subjects.ring(topic), rung):
                yield
        finally:
            self._heard.discard(again)

    def all_heard(self) -> None:
        """As if everybody had rung, for some may have been lost."""
        for heard in list(self._heard):
            heard()
