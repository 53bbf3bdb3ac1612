from adk_models import Slow
from google.adk.agents import LlmAgent
from script import INSTRUCTION

root_agent = LlmAgent(name="slow", model=Slow(), instruction=INSTRUCTION)
