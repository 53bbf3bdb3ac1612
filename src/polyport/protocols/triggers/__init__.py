"""Triggers (spec rest 7.5): Pub/Sub push, Eventarc, webhooks and schedules run an agent, once for each message.

`App(protocols=["rest", Triggers(schedules=[...], webhooks={...})])` serves them.
"""

from polyport.protocols.triggers.mount import Triggers
from polyport.protocols.triggers.settings import Schedule, Webhook

__all__ = ["Schedule", "Triggers", "Webhook"]
