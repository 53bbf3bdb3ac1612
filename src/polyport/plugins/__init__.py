"""Plugins that come with Polyport, for `App(plugins=[...])`. Each is a `polyport.Plugin`; write your own in the same way.

Peers of agents, models, tools and stores: they know the ports and the engine, and nothing of a protocol. They are loaded on
first touch; `__init__.pyi` tells type checkers the same.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "CallModifierPlugin": "call_modifier",
    "LoggingPlugin": "logging",
    "Price": "usage",
    "RecordReplay": "record_replay",
    "ReplayMismatch": "recording",
    "RetryReflectPlugin": "retry_reflect",
    "RunUsage": "usage",
    "UsagePlugin": "usage",
    "UsageTotals": "usage",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'polyport.plugins' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"polyport.plugins.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
