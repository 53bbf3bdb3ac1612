"""Who is there: each process says so again and again, and the server forgets those that do not.

Used by the cluster, once every third of a lease. Only the server's clock counts.
"""

import msgspec
from msgspec import Struct, structs

from polyport.cluster.jetstream import JetStream, Message
from polyport.cluster.subjects import Subjects
from polyport.codec import encode


class Replica(Struct, frozen=True):
    """What a process says of itself. `born` counts how often it was taken for gone. `kinds` are what it can recover."""

    name: str
    born: int = 0
    kinds: list[str] = []


class Replicas:
    def __init__(self, jetstream: JetStream, subjects: Subjects, lease_s: int) -> None:
        self._jetstream = jetstream
        self._subjects = subjects
        self._lease_s = lease_s
        self._me = Replica("")
        self._seq = 0
        self.known: dict[str, Replica] = {}
        """Those that were there at the last look."""

    def enter(self, name: str) -> None:
        self._me, self._seq, self.known = Replica(name), 0, {}

    async def say(self, kinds: list[str]) -> bool:
        """Say that we are there; False when the others had reason to think that we are gone."""
        self._me = structs.replace(self._me, kinds=kinds)
        subject, first = self._subjects.replica(self._me.name), self._seq == 0
        seq = None
        if not first:
            seq = await self._jetstream.put(subject, encode(self._me), expect=self._seq, ttl_s=self._lease_s)
        if seq is not None:
            self._seq = seq
            return True
        gone = not first and not any(r.name == self._me.name for r in await self._look())
        if gone:
            self._me = structs.replace(self._me, born=self._me.born + 1)
        seq = await self._jetstream.put(subject, encode(self._me), ttl_s=self._lease_s)
        assert seq is not None
        self._seq = seq
        return not gone

    async def lost(self) -> list[Replica]:
        """Those that were there at the last look, and are gone."""
        before, self.known = self.known, {replica.name: replica for replica in await self._look()}
        return [replica for name, replica in before.items() if name not in self.known and name != self._me.name]

    async def names(self) -> set[str]:
        """Those that are there now."""
        return {replica.name for replica in await self._look()}

    async def leave(self) -> None:
        await self._jetstream.drop(self._subjects.signals, self._seq)

    async def first_at(self, lost: Replica, kind: str, keep_s: int = 3600) -> bool:
        """Whether we are the first to care for what a process has left of a kind."""
        subject = self._subjects.loss(lost.name, lost.born, kind)
        return await self._jetstream.put(subject, b"", expect=0, ttl_s=keep_s) is not None

    async def _look(self) -> list[Replica]:
        found = await self._jetstream.since(self._subjects.signals, self._subjects.all_replicas, 0, tries=1)
        return [_replica(message) for message in found]


def _replica(message: Message) -> Replica:
    """Who says what cannot be read, such as another version, is there all the same: its runs must not be taken from it."""
    name = message.subject.rpartition(".")[2]
    try:
        said = msgspec.json.decode(message.data, type=Replica)
    except msgspec.DecodeError:
        return Replica(name)
    return structs.replace(said, name=name)
