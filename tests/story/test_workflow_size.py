"""What a graph that asks again and again leaves in the session (FR-055)."""

from polyport import App, Content, Part, SessionKey, codec
from polyport.data.content import FunctionResponse
from polyport.workflow import START, NodeContext, Workflow, node

PAUSES, PAYLOAD = 20, 20_000


async def gather(text: str, ctx: NodeContext) -> str | None:
    if len(ctx.answers) == PAUSES:
        return f"{sum(len(answer) for answer in ctx.answers.values())} characters"
    await ctx.request_input("More?", interrupt_id=f"more-{len(ctx.answers)}")
    return None


async def test_FR_055_twenty_pauses_with_large_answers_cost_what_the_answers_cost() -> None:
    app = App(Workflow("patient", edges=[(START, node(gather, rerun_on_resume=True))]))
    async with app:
        reply = await app.ask("go", session="s")
        for n in range(PAUSES):
            assert reply.outcome.status == "paused"
            value = str(n % 10) * PAYLOAD
            answer = FunctionResponse(id=f"more-{n}", name="adk_request_input", response={"response": value})
            reply = await app.ask(Content(role="user", parts=[Part(function_response=answer)]), session="s")
        assert reply.text == f"{PAUSES * PAYLOAD} characters"
        session = await app.stores.sessions.get(SessionKey("patient", "user", "s"))
    sizes = [len(codec.encode(event)) for event in session.events]
    assert PAUSES * PAYLOAD < sum(sizes) < 1.5 * PAUSES * PAYLOAD
    assert max(sizes) < 1.5 * PAYLOAD
