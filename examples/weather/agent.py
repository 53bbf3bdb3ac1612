"""One agent, one tool, no key.

    polyport run examples/weather       then: How is the weather in Paris and in Rome?
    polyport serve examples/weather

A tool is a function: its name, its docstring and its type hints tell the model what it is for. `demo` is an offline model that
follows simple rules; put "gemini-flash-latest", "openai/gpt-5-mini" or the like in its place.
"""

from polyport import LlmAgent

WEATHER = {"paris": (18, "cloudy"), "rome": (27, "sunny"), "tokyo": (22, "light rain"), "oslo": (11, "clear")}


def get_weather(city: str) -> dict:
    """Current weather of a city.

    Args:
        city: name of the city, such as Paris
    """
    known = WEATHER.get(city.lower())
    if known is None:
        return {"error": f"no weather for {city}; known are {', '.join(sorted(WEATHER))}"}
    return {"temperature_c": known[0], "sky": known[1]}


root_agent = LlmAgent(
    name="weather",
    model="demo",
    description="Tells the weather of a city.",
    instruction="Answer questions about the weather with the tool. Temperatures are in degrees Celsius.",
    tools=[get_weather],
)
