"""LlmAgent: an agent that asks a model and uses tools.

The agent that users write. Holds configuration only; the engine's turn loop does the work, so that one object can serve any
number of runs at once.
"""

from dataclasses import dataclass

from polyport.data.run import Ending
from polyport.engine.llm_loop import run_llm
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import RunContext


@dataclass(frozen=True, kw_only=True, eq=False)
class LlmAgent(LlmSpec):
    """`LlmAgent(name="weather", model="gemini-flash-latest", instruction="...", tools=[get_weather])`.

    See `engine.spec.LlmSpec` for all fields.
    """

    async def run(self, ctx: RunContext) -> Ending:
        return await run_llm(ctx, self)
