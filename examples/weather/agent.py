"""The weather example: one agent, one tool, no key. `polyport run examples/weather`, `polyport serve examples/weather`."""

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
    return {"city": city, "temperature_c": known[0], "sky": known[1]}


root_agent = LlmAgent(
    name="weather",
    model="demo",
    description="Tells the weather of a city.",
    instruction="Answer questions about the weather with the tool. Temperatures are in degrees Celsius.",
    tools=[get_weather],
)
