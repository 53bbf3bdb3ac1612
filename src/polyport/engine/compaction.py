"""Compaction: after a run, the older part of its session gets a summary that prompts show instead (spec core 3.12).

Made by the App, one per app; asked by the run coordinator when a run has ended and its followers have everything, while the
session is still the run's. The summary is stored as an event that nobody is shown as an answer; no event is ever removed.
Nothing that goes wrong here reaches a caller: the answer was given already, so it is logged (statement rest-44).
"""

import logging

import anyio

from polyport.data.compaction import CompactionConfig, Summariser
from polyport.data.content import Content
from polyport.data.event import Compaction, Event, new_actions
from polyport.data.session import Session
from polyport.engine.commit import STORE_TIMEOUT_S
from polyport.engine.compaction_ranges import Range, chars, pick_range
from polyport.engine.compaction_summary import LlmSummariser
from polyport.engine.contained import Enclosed
from polyport.engine.hooks import ask
from polyport.engine.tree import AgentTree
from polyport.errors import AgentError, ConfigError, PolyportError, Superseded
from polyport.ports.model import Model
from polyport.ports.stores import SessionStore
from polyport.seams import Seams

log = logging.getLogger("polyport.runs")

AUTHOR = "polyport.compaction"
"""Who a summary is by. No agent can have this name, so a conversation is never taken for that of the root agent."""


class Compactor:
    """Summarises sessions by `config`. `model` is the one that is asked, None when the user has a summariser."""

    def __init__(self, config: CompactionConfig, model: Model | None = None) -> None:
        self.config = config
        self.model = model
        self._summarise: Summariser
        if config.summariser is not None:
            self._summarise = config.summariser
        elif model is not None:
            self._summarise = LlmSummariser(model, summary_tokens=config.summary_tokens, part_chars=config.part_chars)
        else:
            raise ConfigError("compaction: there is neither a summariser nor a model to write summaries")

    async def compact(self, session: Session, store: SessionStore, seams: Seams, run_id: str) -> Event | None:
        """Store a summary if one is due; the event, or None. Never raises but for a cancellation.

        `session` is the run's own object: its fence says whether the session is still the run's.
        """
        try:
            found = pick_range(session.events, self.config)
            if found is None:
                return None
            summary = await self._ask(found)
            if summary is None:
                return None
            size = chars(summary)
            if size >= found.chars:
                log.info("run %s: a summary of %d characters for %d is of no use", run_id, size, found.chars)
                return None
            return await _store(session, store, _event(found, summary, seams, run_id))
        except Superseded:
            log.info("run %s: a newer run owns the session; its summary is dropped", run_id)
        except PolyportError as error:
            log.warning("run %s: its session could not be summarised: %s", run_id, error)
        except Exception:
            log.exception("run %s: its session could not be summarised", run_id)
        return None

    async def _ask(self, found: Range) -> Content | None:
        """The summary; None when the summariser leaves it. AgentError when it takes too long or gives something else."""
        with anyio.move_on_after(self.config.timeout_s), Enclosed("the summariser"):
            summary = await ask(self._summarise, found.events, found.previous)
            if summary is None:
                return None
            if not isinstance(summary, Content):
                raise AgentError(
                    f"the summariser returned a {type(summary).__name__}; it must return a Content or None"
                )
            if not _says_something(summary):
                raise AgentError("the summariser returned a summary without any text or data")
            return summary
        raise AgentError(f"the summariser took longer than {self.config.timeout_s:g} s (timeout_s)")


def _says_something(summary: Content) -> bool:
    """Whether a prompt would show anything of it; calls and responses have no place in a summary."""
    return any((part.text or "").strip() or part.inline_data or part.file_data for part in summary.parts)


def _event(found: Range, summary: Content, seams: Seams, run_id: str) -> Event:
    actions = new_actions()
    actions.compaction = Compaction(start_timestamp=found.start, end_timestamp=found.end, compacted_content=summary)
    return Event(id=seams.new_id(), timestamp=seams.now(), invocation_id=run_id, author=AUTHOR, actions=actions)


async def _store(session: Session, store: SessionStore, event: Event) -> Event | None:
    """Stored, but neither published nor shown to plugins and sinks: to them the run has ended. No claim: a session that
    somebody else took over stays theirs."""
    with anyio.move_on_after(STORE_TIMEOUT_S, shield=True):
        return await store.append(session, event)
    raise AgentError(f"the session store did not take the summary within {STORE_TIMEOUT_S:.0f} s")


def make_compactor(config: CompactionConfig, tree: AgentTree, model: Model | None) -> Compactor:
    """A compactor for the agents of `tree`. `model` is the one that the configuration names; without it, and without a
    summariser, that of the first LLM agent from the root on. ConfigError when there is none."""
    if config.summariser is None and model is None:
        first = next(iter(tree.bounds()), None)
        if first is None:
            raise ConfigError(
                f"compaction: neither agent {tree.root.name!r} nor any below it has a model that could write summaries; set "
                "model or summariser"
            )
        model = first.model
    return Compactor(config, model)
