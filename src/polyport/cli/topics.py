"""Options by topic in `--help`, and the words that several commands say about agents. Used by commands with many options."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

AGENT_HELP = """AGENT is a folder with an agent.py or a root_agent.yaml, a .py or .yaml file, or a module; `:name` behind it
says which agent of several. Without a name `app`, `root_agent` or `agent` is taken. A folder of agent folders gives all of
them. A `.env` beside the agent is read first."""


OTHER = "Other"


class TopicOption(click.Option):
    """An option that stands under the heading `topic`."""

    def __init__(self, *words: Any, topic: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.topic = topic

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Names the variable that a wrong value came from: Kubernetes sets POLYPORT_PORT for a Service named polyport."""
        hint = super().get_error_hint(ctx)
        if ctx is not None and ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT:
            return f"{hint} (from {ctx.auto_envvar_prefix}_{(self.name or '').upper()})"
        return hint


class TopicCommand(click.Command):
    """Shows its options under their headings, in the order in which they are declared."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        topics: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            told = option.get_help_record(ctx)
            if told is not None and isinstance(option, click.Option):
                topics.setdefault(getattr(option, "topic", OTHER), []).append(told)
        topics[OTHER] = topics.pop(OTHER)  # --help itself, last
        for topic, options in topics.items():
            with formatter.section(topic):
                formatter.write_dl(options)


def about(topic: str) -> Callable[..., Any]:
    """`click.option` for options of one topic."""
    return partial(click.option, cls=TopicOption, topic=topic)
