from adk_models import Scripted
from google.adk.agents import LlmAgent
from script import INSTRUCTION

root_agent = LlmAgent(name="one", model=Scripted(), instruction=INSTRUCTION)
