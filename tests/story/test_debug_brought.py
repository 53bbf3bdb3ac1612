"""Debug and Metrics bring along the plugins and watches that they need."""

from polyport import App, LlmAgent
from polyport.protocols.debug.mount import Debug
from polyport.testing import ScriptedModel, connect
from support.debugging import get
from support.talk import Talk


async def test_FR_225_names_are_enough():
    app = App(LlmAgent(name="root", model=ScriptedModel("hi")), protocols=["rest", "debug", "metrics"])
    async with connect(app) as client:
        talk = Talk(client, "root", app)
        await talk.create()
        await talk.run()
        assert len(await get(talk, "/debug/trace/session/s1")) == 2
        text = (await client.get("/metrics")).text
        assert 'polyport_http_requests_total{method="POST",route="/run",status="200"} 1.0' in text
        assert 'polyport_model_calls_total{model="scripted",outcome="ok"} 1.0' in text


def test_a_plugin_that_is_given_is_not_brought_again():
    debug = Debug()
    app = App(LlmAgent(name="root", model="demo"), plugins=debug.plugins, protocols=["rest", debug])
    assert app.plugins == debug.plugins
