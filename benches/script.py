"""What the scripted models of all servers say, so that all of them do the same work. Standard library only: it is imported in
the environment of google-adk, too."""

ANSWER = "The answer of the scripted model."
INSTRUCTION = "You answer the questions of a benchmark in one short sentence."
CITY = "Tokyo"
PARTIALS = 200
PIECES = [f"piece {n} of the answer " for n in range(PARTIALS)]
WHOLE = "".join(PIECES)


async def weather(city: str) -> dict:
    """The weather in a city."""
    return {"city": city, "weather": "sunny", "celsius": 21}


def schedule(text: str) -> tuple[int, float]:
    """The message "COUNT PERIOD_MS" to the slow model: so many pieces, one per so many seconds."""
    count, period = text.split()
    return int(count), float(period) / 1000
