"""The names of everything that a cluster has on NATS: three streams and their subjects, and those of core messages.

Used by the parts of the cluster. All are below one prefix, so that several systems may share a server; what comes from outside,
such as ids, is in them as a digest only.
"""

import hashlib

from polyport.codec import encode
from polyport.data.session import SessionKey


def digest(*words: str) -> str:
    """A token for words, 32 hex digits."""
    return hashlib.blake2b(encode(words), digest_size=16).hexdigest()


class Subjects:
    """Streams: `tickets` has who runs what, and what waits for somebody who runs it; `feeds` what was shown of each life of a
    run, which is also heard as `shown`; `signals` what is forgotten by itself: who is there, cancels, who cared for a loss."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tickets = f"{prefix}_tickets"
        self.feeds = f"{prefix}_feeds"
        self.signals = f"{prefix}_signals"
        self.all_tickets = f"{prefix}.ticket.*"
        self.all_waiting = f"{prefix}.waiting.>"
        self.all_replicas = f"{prefix}.replica.*"
        self.all_cancels = f"{prefix}.cancel.>"
        self.ask = f"{prefix}.ask"

    def ticket(self, key: SessionKey) -> str:
        return f"{self.prefix}.ticket.{digest(*key)}"

    def freed(self, key: SessionKey) -> str:
        return f"{self.prefix}.freed.{digest(*key)}"

    def waiting(self, key: SessionKey) -> str:
        """Says that the ticket of a session waits for somebody who takes it."""
        return f"{self.prefix}.waiting.{digest(key.app)}.{digest(*key)}"

    def work(self, app: str) -> str:
        """Wakes one of those who take such runs."""
        return f"{self.prefix}.work.{digest(app)}"

    def feed(self, run_id: str, life: int) -> str:
        return f"{self.prefix}.feed.{digest(run_id)}.{life}"

    def lives(self, run_id: str) -> str:
        """The feeds of all lives of a run."""
        return f"{self.prefix}.feed.{digest(run_id)}.*"

    def shown(self, run_id: str, life: int) -> str:
        return f"{self.prefix}.shown.{digest(run_id)}.{life}"

    def cancel(self, run_id: str, life: int) -> str:
        return f"{self.prefix}.cancel.{digest(run_id)}.{life}"

    def replica(self, name: str) -> str:
        return f"{self.prefix}.replica.{name}"

    def loss(self, name: str, born: int, kind: str) -> str:
        return f"{self.prefix}.loss.{name}.{born}.{digest(kind)}"

    def ring(self, topic: str) -> str:
        return f"{self.prefix}.ring.{digest(topic)}"

    def streams(self, feed_age_s: float, replicas: int) -> list[tuple[str, list[str], dict[str, object]]]:
        """Name, subjects and settings of each stream."""
        p = self.prefix
        common: dict[str, object] = {"num_replicas": replicas, "allow_direct": True}
        one: dict[str, object] = {**common, "max_msgs_per_subject": 1}
        heard: dict[str, object] = {"src": f"{p}.feed.>", "dest": f"{p}.shown.>"}
        return [
            (self.tickets, [f"{p}.ticket.*", f"{p}.waiting.>"], one),
            (self.feeds, [f"{p}.feed.>"], {**common, "max_age": int(feed_age_s * 1e9), "republish": heard}),
            (self.signals, [f"{p}.replica.*", f"{p}.cancel.>", f"{p}.loss.>"], {**one, "allow_msg_ttl": True}),
        ]
