"""Agents in YAML: every key does what the same field does in Python (spec core 9, 12.30; FR-217, FR-218)."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyport import App, LlmAgent, LoopAgent, ParallelAgent, RemoteAgent, SequentialAgent
from polyport.config.load import load
from polyport.config.yaml_agents import load_yaml
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call, connect
from support.projects import agent_of, clean_process, mistakes, write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with clean_process():
        yield tmp_path


TOOLS = '''
from polyport import ToolContext

def track_shipment(id: str) -> dict:
    """Where a shipment is."""
    return {"id": id, "place": "Oslo"}
'''


# ---- the seed's form, as it is written there


async def test_the_seeds_file_works_as_written():
    """`model: {type, name}` and bare names of tools."""
    seed = """
        name: logistics
        description: Tracks shipments.
        model:
          type: gemini
          name: gemini-2.5-flash
        instruction: Help with shipments.
        tools:
          - track_shipment
        """
    model = ScriptedModel(call("track_shipment", {"id": "7"}), "It is in Oslo.")
    agent = agent_of(seed, {"tools.py": TOOLS}, models={"gemini-2.5-flash": model})
    reply = await App(agent).ask("Where is 7?")
    assert reply.text == "It is in Oslo."
    assert [r.response for e in reply.events for r in e.responses] == [{"id": "7", "place": "Oslo"}]
    assert model.requests[0].system.startswith("Help with shipments.")
    model.check()


# ---- LlmAgent: all fields


async def test_every_field_of_an_llm_agent_reaches_it():
    root = """
        agent_class: LlmAgent
        name: desk
        model: demo
        description: on
        instruction: Serve {who?}.
        global_instruction: {file: prompts/all.md}
        generate_content_config:
          temperature: 0
          topP: 0.5
          maxOutputTokens: 100
          stop_sequences: [yes, 1:30]
          thinkingConfig: {thinkingBudget: 7, include_thoughts: true}
          toolchoice: auto
          extra: {safetySettings: [{category: a}]}
        output_key: answer
        output_schema:
          type: object
          properties: {n: {type: integer}}
          required: [n]
        include_contents: none
        disallow_transfer_to_parent: true
        disallow_transfer_to_peers: true
        sub_agents:
          - {name: helper, description: Helps., mode: task, input_schema: {type: object, properties: {a: {type: string}}}}
        """
    model = ScriptedModel('{"n": 3}', schema_with_tools=True)
    agent = agent_of(root, {"prompts/all.md": "Be brief.\r\n"}, models={"demo": model})
    assert agent.description == "on"
    assert agent.config.stop_sequences == ["yes", "1:30"]
    assert (agent.config.thinking_budget, agent.config.include_thoughts) == (7, True)
    app = App(agent)
    reply = await app.ask("hi", session="s", state={"who": "all"})
    asked = model.requests[0]
    assert "Be brief." in asked.system and "Serve all." in asked.system
    assert (asked.config.temperature, asked.config.top_p, asked.config.max_output_tokens) == (0.0, 0.5, 100)
    assert asked.config.extra == {"safetySettings": [{"category": "a"}]}
    assert asked.response_schema is not None and asked.response_schema["required"] == ["n"]
    assert reply.events[-1].actions.state_delta == {"answer": {"n": 3}}
    helper = agent.sub_agents[0]
    assert helper.mode == "task" and helper.input_schema["properties"] == {"a": {"type": "string"}}
    assert agent.disallow_transfer_to_parent and agent.disallow_transfer_to_peers and agent.include_contents == "none"


async def test_callbacks_of_all_kinds_are_called_in_order():
    root = """
        name: desk
        model: demo
        tools: [track_shipment]
        before_agent_callbacks: [{name: hooks.before_agent}]
        after_agent_callbacks: [hooks:after_agent]
        before_model_callbacks: hooks.before_model
        after_model_callbacks: [hooks.after_model, {code: hooks.noting, args: {what: second}}]
        on_model_error_callbacks: [hooks.on_model_error]
        before_tool_callbacks: [hooks.before_tool]
        after_tool_callbacks: [hooks.after_tool]
        on_tool_error_callbacks: [hooks.on_tool_error]
        """
    hooks = """
        NOTES = []

        def note(what):
            def callback(*args):
                NOTES.append(what)
            return callback

        def noting(what):
            return note(what)

        for kind in ("before_agent", "after_agent", "before_model", "after_model", "on_model_error", "before_tool",
                     "after_tool", "on_tool_error"):
            globals()[kind] = note(kind)
        """
    model = ScriptedModel(call("track_shipment", {"id": "7"}), "Oslo.", RuntimeError("down"))
    agent = agent_of(root, {"tools.py": TOOLS, "hooks.py": hooks}, models={"demo": model})
    app = App(agent)
    await app.ask("go")
    notes: list[str] = agent.before_model[0].__globals__["NOTES"]
    of_model = ["before_model", "after_model", "second"]
    assert notes == ["before_agent", *of_model, "before_tool", "after_tool", *of_model, "after_agent"]
    del notes[:]
    with pytest.raises(RuntimeError, match="down"):
        await app.ask("again")
    assert notes == ["before_agent", "before_model", "on_model_error"]


async def test_instructions_and_schemas_by_code():
    root = """
        name: desk
        model: demo
        instruction: {code: code.instruction}
        output_schema: code.Answer
        """
    code = """
        from dataclasses import dataclass

        @dataclass
        class Answer:
            n: int

        def instruction(ctx):
            return f"You speak with {ctx.user_id}."
        """
    model = ScriptedModel('{"n": 3}')
    agent = agent_of(root, {"code.py": code}, models={"demo": model})
    reply = await App(agent).ask("hi", user="ada")
    assert model.requests[0].system.startswith("You speak with ada.") and reply.text == '{"n":3}'
    assert model.requests[0].response_schema["properties"]["n"]["type"] == "integer"


# ---- models of all providers (FR-218)


@pytest.mark.parametrize(
    ("model", "name", "where"),
    [
        ("openai/gpt-x", "gpt-x", "api.openai.com"),
        ("{type: openai, name: gpt-x, api_base: 'http://127.0.0.1:1/v1', api_key: k}", "gpt-x", "127.0.0.1:1/v1"),
        ("{provider: ollama, name: llama3}", "llama3", "127.0.0.1:11434"),
        ("{type: anthropic, name: claude-x, api_key: !env KEY}", "claude-x", "api.anthropic.com"),
        ("{name: gemini-flash-latest, base_url: 'http://127.0.0.1:2'}", "gemini-flash-latest", "127.0.0.1:2"),
        ("{type: vllm, name: any/thing}", "any/thing", "127.0.0.1:8000"),
        ("{type: demo}", "demo", ""),
        ("{code: own.model}", "mine", ""),
        ("{code: own.make, args: {name: made}}", "made", ""),
        ("{code: own.NAME}", "demo", ""),
        ("{name: demo, fallback: [{code: own.model}, ollama/x]}", "demo", ""),
        ("{type: ollama, name: small, constrained: true}", "small", ""),
    ],
)
def test_FR_218_models_are_resolved_by_the_registry_of_python(model: str, name: str, where: str):
    os.environ.update(KEY="secret-key", OPENAI_API_KEY="k", GEMINI_API_KEY="k")
    own = """
        from polyport.testing import ScriptedModel
        model = ScriptedModel("hi", name="mine")
        NAME = "demo"
        def make(name):
            return ScriptedModel("hi", name=name)
        """
    agent = agent_of(f"name: a\nmodel: {model}\ninstruction: x\n", {"own.py": own})
    assert agent.model.name == name
    if where:
        assert where in agent.model._http.base_url
    App(agent)


def test_agents_that_name_the_same_model_share_it_and_a_sub_agent_takes_that_above():
    root = """
        name: a
        model: ollama/x
        sub_agents:
          - {name: b, model: ollama/x, description: b}
          - {name: c, description: c}
        """
    agent = agent_of(root)
    assert agent.sub_agents[0].model is agent.model and agent.sub_agents[1].model == ""
    again = load_yaml("root_agent.yaml")
    assert again is not agent and again.sub_agents[0] is not agent.sub_agents[0], "no load shares with another"


def test_FR_218_mistakes_in_models_and_unknown_keys_are_told_with_place_and_guess():
    root = """\
        name: a
        model: {type: gemni, name: x}
        instrution: hi
        sub_agents:
          - {name: b, model: opnai/gpt-x}
          - {name: c, model: openai/gpt-x}
          - {name: d, model: {type: openai, provider: openai, name: x}}
          - {name: e, model: {base_url: x}}
          - {name: f, model: {code: math.pi, name: x}}
          - {name: g, model: {api_bse: x, name: demo}}
        """
    lines = mistakes(root)
    told = {
        "root_agent.yaml:2:15": "no provider 'gemni'; did you mean 'gemini'?",
        "root_agent.yaml:3:1": "no key 'instrution' in an LlmAgent; did you mean 'instruction'?",
        "root_agent.yaml:5:22": "did you mean 'openai/gpt-x'?",
        "root_agent.yaml:6:22": "OPENAI_API_KEY",
        "root_agent.yaml:7:47": "type and provider are the same",
        "root_agent.yaml:8:22": "a model needs its `name`",
        "root_agent.yaml:9:44": "made by `code`",
        "root_agent.yaml:10:23": "no key 'api_bse' in a model; did you mean 'api_base'?",
    }
    assert len(lines) == len(told), lines
    for line, (place, text) in zip(lines, told.items(), strict=True):
        assert line.startswith(place + ":") and text in line


@pytest.mark.parametrize("number", ["9" * 900, "1e999", "-1e999"])
def test_a_number_that_is_none_of_this_world_is_told(number: str):
    (line,) = mistakes(f"name: a\nmodel: demo\ngenerate_content_config: {{temperature: {number}}}\n")
    assert "'temperature' takes a number, not" in line


def test_a_key_from_the_environment_is_never_shown():
    os.environ["TOY_KEY"] = "sk-very-secret"
    lines = mistakes(
        "name: a\nmode: !env TOY_KEY\nmodel: {type: demo, api_key: !env TOY_KEY, fallback: !env TOY_KEY}\n"
    )
    assert len(lines) == 3 and not any("very-secret" in line for line in lines)
    agent = agent_of("name: a\nmodel: {type: openai, name: x, api_key: !env TOY_KEY}\n")
    assert "very-secret" not in repr(agent)


@pytest.mark.parametrize(
    "text",
    [
        "name: !env TOY_KEY",
        "agent_class: !env TOY_KEY",
        "model: !env TOY_KEY",
        "model: {type: !env TOY_KEY, name: x}",
        "model: {code: !env TOY_KEY}",
        "tools: [!env TOY_KEY]",
        "tools: [{name: AgentTool, args: {agent: {config_path: !env TOY_KEY}}}]",
        "tools: [{name: exit_loop, args: !env TOY_KEY}]",
        "sub_agents: [{code: !env TOY_KEY}]",
        "sub_agents: [{config_path: !env TOY_KEY}]",
        "instruction: {file: !env TOY_KEY}",
        "before_agent_callbacks: !env TOY_KEY",
        "output_schema: !env TOY_KEY",
        "generate_content_config: {temperature: !env TOY_KEY}",
        "app: {stores: !env TOY_KEY}",
        "app: {plugins: [!env TOY_KEY]}",
        "app: {protocols: [!env TOY_KEY]}",
        "app: {auth: !env TOY_KEY}",
        "agent_class: Workflow\nedges: [[START, !env TOY_KEY]]",
    ],
)
@pytest.mark.parametrize("secret", ["sk/very-secret", "9qz", "sk_very:secret\n'x'"])
def test_what_comes_from_the_environment_is_in_no_message(text: str, secret: str):
    os.environ["TOY_KEY"] = secret
    usual = "" if text.startswith("name") else "name: a\n"
    model = "" if "odel:" in text or "Workflow" in text else "model: demo\n"
    lines = mistakes(f"{usual}{model}{text}\n")
    assert lines and not any(secret in line or "secret" in line for line in lines), lines


def test_env_beside_the_file_is_read_first():
    agent = agent_of("name: a\nmodel: demo\ndescription: !env TOY_TEXT\n", {".env": "TOY_TEXT=from the file\n"})
    assert agent.description == "from the file"


# ---- flows and sub-agents


async def test_flows_with_files_code_and_agents_in_place():
    root = """
        agent_class: SequentialAgent
        name: team
        sub_agents:
          - config_path: sub/first.yaml
          - agent_class: ParallelAgent
            name: both
            sub_agents:
              - {name: left, model: demo}
              - {code: people.right}
          - agent_class: LoopAgent
            name: again
            max_iterations: 2
            sub_agents: [{code: people.make, args: {name: looped}}]
        """
    files = {
        "sub/first.yaml": "name: first\nmodel: demo\nsub_agents: [{config_path: ./deeper.yaml}]\n",
        "sub/deeper.yaml": "\ufeffname: deeper\r\nmodel: demo\r\ndescription: d\r\n".encode(),
        "people.py": """
            from polyport import LlmAgent
            from polyport.testing import ScriptedModel
            right = LlmAgent(name="right", model=ScriptedModel("right"))
            def make(name):
                return LlmAgent(name=name, model=ScriptedModel("round 1", "round 2"))
            """,
    }
    agent = agent_of(root, files, models={"demo": ScriptedModel("first", "left")})
    assert isinstance(agent, SequentialAgent)
    first, both, again = agent.sub_agents
    assert isinstance(both, ParallelAgent) and isinstance(again, LoopAgent) and again.max_iterations == 2
    assert [child.name for child in first.sub_agents] == ["deeper"]
    reply = await App(agent).ask("go")
    authors = [e.author for e in reply.events]
    assert authors[0] == "first" and set(authors[1:3]) == {"left", "right"} and authors[3:] == ["looped", "looped"]


async def test_agents_of_own_classes_and_functions():
    root = """
        agent_class: SequentialAgent
        name: team
        sub_agents:
          - {agent_class: own.Echo, name: echo, times: 2}
          - {agent_class: FunctionAgent, name: fn, function: own.say}
        """
    own = """
        from dataclasses import dataclass
        from polyport import Agent, Content, Event, Part

        def said(text):
            return Content(role="model", parts=[Part(text=text)])

        @dataclass(frozen=True, kw_only=True, eq=False)
        class Echo(Agent):
            times: int = 1
            async def run(self, ctx):
                for _ in range(self.times):
                    await ctx.emit(ctx.event(content=said("echo")))

        async def say(ctx):
            yield ctx.event(content=said("said"))
        """
    agent = agent_of(root, {"own.py": own})
    reply = await App(agent).ask("go")
    assert [e.text for e in reply.events] == ["echo", "echo", "said"]
    lines = mistakes("agent_class: own.Echo\nname: e\ntimez: 3\n")
    assert "Echo takes no 'timez'; did you mean 'times'?" in lines[0]
    assert "is not a class of agents" in mistakes("agent_class: own:said\nname: e\n")[0]


def test_remote_agents_have_all_their_options():
    os.environ["TOKEN"] = "t-1"
    root = """
        agent_class: RemoteAgent
        name: prime
        description: Knows primes.
        url: https://prime.example
        headers: {Authorization: !env "Bearer ${TOKEN}"}
        header_provider: own.headers
        metadata: {tenant: 7}
        stream: false
        escalate: true
        cancel_remote: false
        cancel_timeout_s: 2
        before_request: own.headers
        refresh: own.headers
        build_message: own.headers
        configuration: {acceptedOutputModes: [text/plain]}
        card_keys: [{kty: OKP, crv: Ed25519, kid: one, x: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo}]
        options: own.OPTIONS
        """
    own = """
        from polyport.agents.a2a_client import A2AOptions
        OPTIONS = A2AOptions(trusted_hosts=("other.example",))
        def headers(ctx):
            return {}
        """
    agent = agent_of(root, {"own.py": own})
    assert isinstance(agent, RemoteAgent)
    assert agent.headers == {"Authorization": "Bearer t-1"} and "t-1" not in repr(agent)
    assert agent.metadata == {"tenant": 7} and not agent.stream and agent.escalate and agent.cancel_timeout_s == 2
    assert agent.header_provider is agent.before_request and agent.refresh is agent.build_message
    assert agent.configuration.accepted_output_modes == ["text/plain"]
    assert agent.options.trusted_hosts == ("other.example",) and [key["kid"] for key in agent.card_keys] == ["one"]
    bad = "agent_class: RemoteAgent\nname: r\nurl: http://x\nconfiguration: {acceptedOutputModes: 3}\n"
    assert mistakes(bad)[0].startswith("root_agent.yaml:4:16:")
    assert "exactly one of url, card_url and card" in mistakes("agent_class: RemoteAgent\nname: r\n")[0]


# ---- the app


async def test_app_settings_make_an_app(caplog: pytest.LogCaptureFixture):
    root = """
        name: desk
        model: demo
        app:
          plugins:
            - LoggingPlugin
            - {name: RetryReflectPlugin, args: {max_retries: 1}}
            - own.Mine
            - {code: own.Mine, args: {name: b}}
          limits: {max_llm_calls: 3, on_busy: reject}
          compaction: {compaction_interval: 5, overlap_size: 1}
          remember: true
          stores: sqlite:///data.db
          protocols: [rest, mcp]
        """
    own = """
        from polyport import Plugin
        class Mine(Plugin):
            def __init__(self, name="mine"):
                self.name = name
        """
    app = agent_of(root, {"own.py": own}, models={"demo": ScriptedModel("hi")})
    assert isinstance(app, App) and list(app.trees) == ["desk"]
    names = [plugin.name for plugin in app.plugins]
    assert names == ["logging", "retry_reflect", "mine", "b", "remember"]
    assert app.limits == Limits(max_llm_calls=3, on_busy="reject") and hasattr(app, "mcp")
    assert Path("data.db").exists()
    caplog.set_level(logging.INFO)
    async with app:
        assert (await app.ask("hello")).text == "hi"
    assert "agent=desk" in caplog.text


async def test_an_app_has_its_own_authenticator_by_code():
    own = """
        class Door:
            challenge = "Bearer"
            async def authenticate(self, credentials):
                return None
        """
    app = agent_of("name: a\nmodel: demo\napp: {auth: own.Door}\n", {"own.py": own})
    async with connect(app) as client:
        assert (await client.get("/list-apps")).status == 401
    (line,) = mistakes("name: a\nmodel: demo\napp: {auth: bad.door}\n", {"bad.py": "def door(): ...\n"})
    assert line.startswith("root_agent.yaml:3:13: auth must be an authenticator")


def test_app_settings_belong_to_the_root_and_are_checked():
    root = """\
        name: desk
        model: demo
        app:
          limits: {max_runs: 0}
          compaction: {token_threshold: 5}
          plugins: [LogingPlugin, tools.track_shipment]
          protocols: [rest, amqp]
        sub_agents: [{config_path: sub.yaml}]
        """
    lines = mistakes(root, {"sub.yaml": "name: b\napp: {remember: true}\n", "tools.py": TOOLS})
    assert "sub.yaml:2:6: `app` belongs to the root" in lines[0]
    root = root.replace("sub_agents", "#")
    lines = mistakes(root)
    assert "root_agent.yaml:4:11: limits: max_runs is 0" in lines[0]
    assert "compaction: token_threshold and event_retention_size are set together" in lines[1]
    assert "LogingPlugin" in lines[2] and "not a plugin" in lines[3]
    (line,) = mistakes("name: a\nmodel: demo\napp: {protocols: [rest, amqp]}\n")
    assert line.startswith("root_agent.yaml:3:6: there is no protocol 'amqp'; known are: rest, mcp")
    assert len(lines) == 4


# ---- by the words of the command line


def test_a_folder_a_file_and_a_folder_of_folders_are_found():
    write(
        {
            "bots/one/root_agent.yaml": "name: first\nmodel: demo\n",
            "bots/two/agent.py": "from polyport import LlmAgent\nroot_agent = LlmAgent(name='two', model='demo')\n",
            "bots/three/root_agent.yml": "name: third\nmodel: demo\n",
            "single.yaml": "name: alone\nmodel: demo\n",
        }
    )
    found = load(["bots"])
    assert isinstance(found, dict)
    assert {app: agent.name for app, agent in found.items()} == {"one": "first", "three": "third", "two": "two"}
    for word, name in (("bots/one", "one"), ("bots/one/root_agent.yaml", "first"), ("single.yaml", "alone")):
        found = load([word])
        assert isinstance(found, dict) and list(found) == [name]
    for word, told in (
        ("bots/one:x", "leave out :x"),
        ("bots/one/root_agent.yaml:x", "leave out :x"),
        ("bots/wone", "did you mean bots/one?"),
        ("singel.yaml", "there is no file singel.yaml"),
    ):
        with pytest.raises(ConfigError, match=told):
            load([word])
    write({"bots/two/root_agent.yaml": "name: x\n"})
    with pytest.raises(ConfigError, match=r"has both agent\.py and root_agent\.yaml"):
        load(["bots/two"])


def test_an_app_of_a_folder_has_the_folders_name():
    write({"bots/one/root_agent.yaml": "name: first\nmodel: demo\napp: {}\n"})
    found = load(["bots/one"])
    assert isinstance(found, App) and list(found.trees) == ["one"]


def test_words_of_files_stay_texts():
    agent = agent_of("name: on\nmodel: demo\ndescription: 1:30\ninstruction: 007\noutput_key: yes\n")
    assert isinstance(agent, LlmAgent)
    assert (agent.name, agent.description, agent.instruction, agent.output_key) == ("on", "1:30", "007", "yes")
    lines = mistakes("name: a\nmodel: demo\ndisallow_transfer_to_peers: yes\n")
    assert "takes true or false, not 'yes'; write true or false" in lines[0]


def test_files_in_any_locale_keep_their_letters():
    agent = agent_of("name: wetter_größe\nmodel: demo\ninstruction: {file: 你好.md}\n", {"你好.md": "Sag 🌦"})
    assert agent.name == "wetter_größe" and agent.instruction == "Sag 🌦"


def test_an_empty_key_is_as_good_as_none_and_json_is_yaml():
    agent = agent_of('{"name": "a", "model": "demo", "tools": null, "sub_agents": null, "output_schema": null}')
    assert agent.tools == [] and agent.output_schema is None


@pytest.mark.parametrize(
    ("root", "told"),
    [
        ("- a\n", "an agent is a mapping"),
        ("model: demo\n", "an LlmAgent needs the key 'name'"),
        ("name:\nmodel: demo\n", "an LlmAgent needs the key 'name'"),
        ("name: 1x\nmodel: demo\n", "must be an identifier"),
        ("name: user\nmodel: demo\n", 'cannot be named "user"'),
        ("name: a\nagent_class: LoopAgnt\n", "no agent_class 'LoopAgnt'; did you mean 'LoopAgent'?"),
        ("name: a\nagent_class: LoopAgent\nmax_iterations: -1\n", "max_iterations of loop 'a' must be 0"),
        ("name: a\nagent_class: LoopAgent\nmax_iterations: 1.5\n", "takes a whole number, not '1.5'"),
        ("name: a\nagent_class: SequentialAgent\nmodel: demo\n", "no key 'model' in a SequentialAgent"),
        ("name: a\nmodel: demo\nmode: chatty\n", "not 'chatty'; did you mean 'chat'?"),
        ("name: a\nmodel: demo\ntools: track\n", "'tools' takes a list, not 'track'"),
        ("name: a\nmodel: [demo]\n", "'model' takes a text or a model, not a list"),
        ("name: a\nmodel: demo\noutput_schema: 3\n", "no code reference"),
        ("name: a\nmodel: demo\noutput_schema: [3]\n", "a schema is a mapping"),
        ("name: a\nmodel: demo\ngenerate_content_config: {topP: 1, top_p: 1}\n", "given twice, in two spellings"),
        ("name: a\nmodel: demo\ngenerate_content_config: {extra: 1}\n", "extra takes a mapping"),
        ("name: a\nmodel: demo\nsub_agents: [{config_path: x.yaml, code: y.z}]\n", "give one of config_path and code"),
        ("name: a\nmodel: demo\nsub_agents: [x]\n", "takes a sub-agent by reference, not 'x'"),
        ("name: a\nagent_class: FunctionAgent\n", "a FunctionAgent needs the key 'function'"),
        ("name: a\nname: b\n", "the key 'name' is given twice"),
    ],
)
def test_mistakes_are_told(root: str, told: str):
    lines = mistakes(root)
    assert any(told in line and line.startswith("root_agent.yaml:") for line in lines), lines


def test_an_agent_that_stands_twice_by_an_alias_is_told():
    assert any(
        "two agents of one tree are named 'b'" in line for line in mistakes("name: a\nsub_agents: [&b {name: b}, *b]\n")
    )


def test_models_and_names_that_a_program_gives():
    def hello() -> str:
        """Say hello."""
        return "hello"

    agent: Any = agent_of(
        "name: a\nmodel: any-name\ntools: [hello]\n", models={"any-name": ScriptedModel()}, names={"hello": hello}
    )
    assert [tool.name for tool in agent.tools] == ["hello"]
