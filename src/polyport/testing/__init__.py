"""Floor 9: what tests of agents need, public and shipped: ScriptedModel, connect(), evaluate(), and the contract
suites of the stores."""

from polyport.testing.connect import connect
from polyport.testing.evals import evaluate, evaluate_sync
from polyport.testing.scripted import ScriptedModel, call, chunks

__all__ = ["ScriptedModel", "call", "chunks", "connect", "evaluate", "evaluate_sync"]
