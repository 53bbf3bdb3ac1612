"""A team: a travel desk that hands over to a hotel agent, with session state shared between them."""

from polyport import LlmAgent, ToolContext


def remember_city(city: str, ctx: ToolContext) -> dict:
    """Remember where the guest wants to go.

    Args:
        city: the destination
    """
    ctx.state["city"] = city
    return {"remembered": city}


def find_hotel(stars: int = 3, *, ctx: ToolContext) -> dict:
    """Find a hotel with so many stars in the city that was remembered.

    Args:
        stars: from 1 to 5
    """
    city = ctx.state.get("city")
    if not city:
        return {"error": "no city is known yet"}
    return {"city": city, "hotel": f"Hotel {city} {'*' * stars}", "stars": stars}


hotel_agent = LlmAgent(
    name="hotels",
    description="Finds hotels for the city that the guest has chosen.",
    instruction="Find a hotel in {city?} with the tool.",
    tools=[find_hotel],
)

root_agent = LlmAgent(
    name="travel",
    model="demo",
    description="Helps to plan a trip.",
    instruction="Ask where the guest wants to go and remember it with the tool. Hotels are another agent's work.",
    tools=[remember_city],
    sub_agents=[hotel_agent],
)
