"""Two agents that share a session: a travel desk notes the destination and hands hotels over to another agent.

    polyport run examples/travel        then: Plan a trip to Rome
                                              Find a hotel with 4 stars

The travel agent gets the tool `transfer_to_agent` because it has sub-agents. What one tool writes to `ctx.state` is there for
every agent and every later turn of the session; an instruction reads it as {city?}.
"""

from polyport import LlmAgent, ToolContext

HOTELS = {"rome": "Albergo Sole", "paris": "Hôtel du Pont", "oslo": "Fjordhuset"}


def plan_trip(city: str, ctx: ToolContext) -> str:
    """Plan a trip: note the city that the guest wants to travel to.

    Args:
        city: the destination
    """
    ctx.state["city"] = city
    return f"The trip to {city} is planned. Shall I find a hotel?"


def find_hotel(stars: int = 3, *, ctx: ToolContext) -> str:
    """Find a hotel in the city that was chosen.

    Args:
        stars: how many stars it should have, from 1 to 5
    """
    city = ctx.state.get("city")
    if not city:
        return "There is no trip yet. Which city shall it be?"
    return f"{HOTELS.get(city.lower(), f'Hotel {city}')} in {city} has {stars} stars."


hotels = LlmAgent(
    name="hotels",
    description="Finds hotels.",
    instruction="Find a hotel in {city?} with the tool. Planning is the travel agent's work.",
    tools=[find_hotel],
)

root_agent = LlmAgent(
    name="travel",
    model="demo",
    description="Plans trips.",
    instruction="Ask where the guest wants to go, then plan the trip with the tool. Hotels are the hotels agent's work.",
    tools=[plan_trip],
    sub_agents=[hotels],
)
