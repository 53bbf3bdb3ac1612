from adk_models import ToolCaller
from google.adk.agents import LlmAgent
from script import INSTRUCTION, weather

root_agent = LlmAgent(name="tool", model=ToolCaller(), instruction=INSTRUCTION, tools=[weather])
