"""Plugins that come with Polyport, for `App(plugins=[...])`. Each is a `polyport.Plugin`; write your own in the same way.

Peers of agents, models, tools and stores: they know the ports and the engine, and nothing of a protocol.
"""

from polyport.plugins.call_modifier import CallModifierPlugin
from polyport.plugins.logging import LoggingPlugin
from polyport.plugins.record_replay import RecordReplay
from polyport.plugins.recording import ReplayMismatch
from polyport.plugins.retry_reflect import RetryReflectPlugin
from polyport.plugins.usage import Price, RunUsage, UsagePlugin, UsageTotals

__all__ = [
    "CallModifierPlugin",
    "LoggingPlugin",
    "Price",
    "RecordReplay",
    "ReplayMismatch",
    "RetryReflectPlugin",
    "RunUsage",
    "UsagePlugin",
    "UsageTotals",
]
