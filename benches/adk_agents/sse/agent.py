from adk_models import Streamer
from google.adk.agents import LlmAgent
from script import INSTRUCTION

root_agent = LlmAgent(name="sse", model=Streamer(), instruction=INSTRUCTION)
