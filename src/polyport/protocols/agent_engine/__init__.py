"""The Agent Engine method protocol (spec rest 6): agents served in a container of a managed agent runtime.

`App(protocols=["rest", AgentEngine(engine_id="123")])` serves it; `class_methods()` is what a deployment registers.
"""

from polyport.protocols.agent_engine.methods import Call, Lines, Method
from polyport.protocols.agent_engine.mount import AgentEngine, class_methods

__all__ = ["AgentEngine", "Call", "Lines", "Method", "class_methods"]
