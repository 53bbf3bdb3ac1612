"""What agent files refer to: files inside the project only; code of the project and of packages (spec core 9, 122)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyport.config.yaml_agents import load_yaml
from support.projects import agent_of, clean_process, mistakes, write

SUB = "name: sub\nmodel: demo\ndescription: s\n"
TOOLS = '''
def track(id: str) -> str:
    """Track."""
    return id

class Maker:
    @staticmethod
    def make() -> str:
        """Make."""
        return ""
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with clean_process():
        yield tmp_path


# ---- files


def root_with(path: str) -> str:
    return f"name: root\nmodel: demo\nsub_agents:\n  - config_path: {path}\n"


@pytest.mark.parametrize(
    "path",
    [
        "../out.yaml",
        "sub/../../out.yaml",
        "link.yaml",
        "linked/out.yaml",
        "'C:\\out.yaml'",
        "'C:/out.yaml'",
        "..\\out.yaml",
    ],
)
def test_core_122_FR_217_paths_out_of_the_project_are_refused(here: Path, path: str):
    write({"out.yaml": SUB, "elsewhere/out.yaml": SUB}, here)
    Path("sub").mkdir()
    Path("link.yaml").symlink_to(here / "out.yaml")
    Path("linked").symlink_to(here / "elsewhere")
    (line,) = mistakes(root_with(path))
    assert line.startswith("root_agent.yaml:4:18:") and ("leads out of the project" in line or "is absolute" in line), (
        line
    )


def test_core_122_absolute_paths_are_refused_even_inside(here: Path):
    write({"sub.yaml": SUB})
    (line,) = mistakes(root_with(str(here / "project/sub.yaml")))
    assert "is absolute; write it relative to this file" in line


@pytest.mark.parametrize("path", ["sub.yaml", "./in/math.yaml", "in\\math.yaml", "in/../sub.yaml", "inner.yaml"])
def test_FR_217_paths_are_relative_to_the_file_that_names_them(here: Path, monkeypatch: pytest.MonkeyPatch, path: str):
    write({"sub.yaml": SUB, "in/math.yaml": SUB, "root_agent.yaml": root_with(path)})
    Path("inner.yaml").symlink_to("in/math.yaml")
    monkeypatch.chdir(here)
    for word in ("project", "project/root_agent.yaml", here / "project"):
        agent = load_yaml(word)
        assert [child.name for child in agent.sub_agents] == ["sub"]


def test_FR_217_a_file_below_may_name_one_above_it_that_is_inside():
    write({"in/a.yaml": "name: a\nmodel: demo\nsub_agents: [{config_path: ../sub.yaml}]\n", "sub.yaml": SUB})
    agent = agent_of(root_with("in/a.yaml"))
    assert agent.sub_agents[0].sub_agents[0].name == "sub"


def test_FR_217_a_project_that_is_reached_by_a_link_works(here: Path, monkeypatch: pytest.MonkeyPatch):
    write({"sub.yaml": SUB, "root_agent.yaml": root_with("sub.yaml")})
    (here / "alias").symlink_to(here / "project")
    monkeypatch.chdir(here)
    assert load_yaml("alias").sub_agents[0].name == "sub"


def test_FR_217_circles_and_names_used_twice_are_told_with_the_files():
    files: dict[str, str | bytes] = {
        "a.yaml": "name: a\nmodel: demo\nsub_agents: [{config_path: in/b.yaml}]\n",
        "in/b.yaml": "name: b\nmodel: demo\nsub_agents: [{config_path: ../a.yaml}]\n",
    }
    (line,) = mistakes(root_with("a.yaml"), files)
    assert line.startswith("in/b.yaml:3:28:") and "a.yaml -> in/b.yaml -> a.yaml" in line
    (line,) = mistakes(root_with("root_agent.yaml"))
    assert "root_agent.yaml -> root_agent.yaml" in line
    twice = root_with("sub.yaml") + "  - config_path: sub.yaml\n  - {name: root, description: x}\n"
    lines = mistakes(twice, {"sub.yaml": SUB})
    assert "root_agent.yaml:6:12: two agents of one tree are named 'root'; the first is in root_agent.yaml:1" in lines
    assert "sub.yaml:1:7: two agents of one tree are named 'sub'; the first is in sub.yaml:1" in lines


def test_a_doubling_chain_of_files_is_bounded():
    files: dict[str, str | bytes] = {
        f"f{n}.yaml": f"name: n{n}\nsub_agents: [{{config_path: f{n + 1}.yaml}}, {{config_path: f{n + 1}.yaml}}]\n"
        for n in range(40)
    }
    files["f40.yaml"] = "name: last\n"
    assert any("more than 500 agents" in line for line in mistakes(root_with("f0.yaml"), files))


@pytest.mark.parametrize("path", ["sub.yml", "in", "''", '"a\\0b"'])
def test_files_that_are_not_there_are_told_with_what_is_near(path: str):
    write({"sub.yaml": SUB, "in/x.yaml": SUB})
    (line,) = mistakes(root_with(path))
    assert line.startswith("root_agent.yaml:4:")
    if path == "sub.yml":
        assert "there is no file 'sub.yml'; did you mean 'sub.yaml'?" in line


def test_mistakes_of_all_files_are_told_at_once():
    root = root_with("one.yaml") + "  - config_path: two.yaml\ntypo: 1\n"
    lines = mistakes(root, {"one.yaml": "name: one\nmodle: x\n", "two.yaml": "name: [\n"})
    assert [line.split(":")[0] for line in lines] == ["root_agent.yaml", "one.yaml", "two.yaml"]


def test_texts_and_folders_are_confined_too(here: Path):
    write({"secret.md": "s"}, here)
    root = """\
        name: a
        model: demo
        instruction: {file: ../secret.md}
        tools:
          - {name: SkillToolset, args: {folders: /etc}}
          - {name: OpenApiToolset, args: {spec: ../api.yaml}}
          - {name: McpToolset, args: {stdio_server_params: {command: x, cwd: ..}}}
        """
    lines = mistakes(root)
    assert [line.split(": ")[0] for line in lines] == [f"root_agent.yaml:{n}" for n in ("3:21", "5:42", "6:41", "7:70")]
    assert all("leads out" in line or "is absolute" in line for line in lines)


# ---- code


@pytest.mark.parametrize(
    "ref",
    [
        "track",
        "tools.track",
        "tools:track",
        "tools:Maker.make",
        "tools.Maker.make",
        "pkg.deep.track",
        "pkg:track",
        "project.tools.track",
    ],
)
def test_code_of_the_project_by_all_spellings(ref: str):
    files: dict[str, str | bytes] = {
        "tools.py": TOOLS,
        "pkg/deep.py": TOOLS,
        "pkg/__init__.py": "from .deep import track\n",
    }
    agent = agent_of(f"name: a\nmodel: demo\ntools: ['{ref}']\n", files)
    assert agent.tools[0].name in ("track", "make")


def test_modules_of_a_project_import_each_other_relative_and_by_bare_names():
    files: dict[str, str | bytes] = {
        "tools.py": "from .shared import X\nfrom shared import X as Y\ndef f() -> int:\n    'F.'\n    return X\n",
        "shared.py": "X = 1\n",
    }
    assert agent_of("name: a\nmodel: demo\ntools: [f]\n", files).tools[0].name == "f"


def test_two_projects_with_a_tools_module_each_stay_apart(here: Path):
    for name in ("x", "y"):
        text = f"def f() -> str:\n    'Of {name}.'\n    return ''\n"
        write({"root_agent.yaml": "name: a\nmodel: demo\ntools: [tools.f]\n", "tools.py": text}, here / name)
    found = [load_yaml(here / name).tools[0].description for name in ("x", "y")]
    assert found == ["Of x.", "Of y."]


def test_code_of_installed_packages_is_found():
    agent = agent_of(
        "name: a\nmodel: demo\ntools: [polyport.tools.memory.load_memory, 'polyport.tools.builtin:exit_loop']\n"
    )
    assert [tool.name for tool in agent.tools] == ["load_memory", "exit_loop"]


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("os.system", "'os.system' is Python's own; wrap what you need in a function of your project"),
        ("subprocess:run", "is Python's own"),
        ("tools.os.system", "goes through 'os', which is Python's own"),
        ("tools:os.path.join", "goes through 'os', which is Python's own"),
        ("dotenv.main:os.system", "goes through 'os', which is Python's own"),
        ("builtins.eval", "is Python's own"),
        ("tools.trak", "'tools.trak': 'tools' has no 'trak'; did you mean 'track'?"),
        ("nope.track", "there is no module 'nope' in ., and none is installed"),
        ("trackk", "'trackk': 'tools' has no 'trackk'; did you mean 'track'?"),
        ("exit_lop", "there is no tool 'exit_lop'; did you mean 'exit_loop'?"),
        ("a b", "'a b' is no code reference; write `module:attr` or `module.attr`"),
        ("tools:", "is no code reference"),
        ("../tools.track", "is no code reference"),
        ("tools.__builtins__", "is no code reference"),
        ("tools:track.__globals__", "is no code reference"),
        ("bad.f", "'bad.f' cannot be imported."),
        ("TOOLS", "has no 'TOOLS'"),
        ("tools.NUMBER", "is of type int, not a tool or a function"),
        ("agents.other", "is an agent; write it as an AgentTool, or in sub_agents"),
    ],
)
def test_code_that_cannot_be_had_is_told(ref: str, told: str):
    files: dict[str, str | bytes] = {
        "tools.py": "import os\n" + TOOLS + "\nNUMBER = 3\n",
        "bad.py": "x = 1\n1 / 0\n",
        "agents.py": "from polyport import LlmAgent\nother = LlmAgent(name='o', model='demo')\n",
    }
    lines = mistakes(f"name: a\nmodel: demo\ntools: ['{ref}']\n", files)
    assert lines[0].startswith("root_agent.yaml:3:9:") and told in lines[0], lines
    if ref == "bad.f":
        assert any("bad.py, line 2: 1 / 0" in line for line in lines) and any(
            "ZeroDivisionError" in line for line in lines
        )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sub_agents: [{config_path: LONG.yaml}]", "there is no file 'xxx"),
        ("instruction: {file: LONG}", "there is no file 'xxx"),
        ("instruction: {file: LONG/prompt.md}", "there is no file 'xxx"),
        ("tools: [LONG.f]", "there is no module 'xxx"),
        ("tools: [{name: SkillToolset, args: {folders: LONG}}]", "there is no folder 'xxx"),
        ("tools: [{name: OpenApiToolset, args: {spec: 'LONG'}}]", "there is no file 'xxx"),
    ],
)
@pytest.mark.parametrize("size", [300, 10_000])
def test_a_name_too_long_for_a_file_is_a_mistake_like_others(text: str, told: str, size: int):
    (line,) = mistakes(f"name: a\nmodel: demo\n{text}\n".replace("LONG", "x" * size))
    assert told in line


def test_a_module_of_the_project_may_be_called_like_one_of_pythons():
    files: dict[str, str | bytes] = {"email.py": TOOLS}
    assert agent_of("name: a\nmodel: demo\ntools: [email.track]\n", files).tools[0].name == "track"


def test_without_a_tools_module_a_bare_name_says_so():
    (line,) = mistakes("name: a\nmodel: demo\ntools: [track_shipment]\n")
    assert "'track_shipment' is not known, and . has no tools.py that could define it" in line


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("{greting: x}", "'maker' has no argument 'greting'; did you mean 'greeting'? It takes: greeting"),
        ("{}", "'maker' needs the argument 'greeting'"),
        ("{greeting: boom}", "'maker' failed: KeyError: 'boom'"),
        ("{greeting: mine}", "too bad"),
        ("3", "args takes a mapping, not '3'"),
        ("[{nam: x}]", "an argument is `name: value`, or an item with `name` and `value`"),
        ("{greeting: number}", "is of type int, not a tool"),
    ],
)
def test_arguments_of_code_are_checked(args: str, told: str):
    tools = '''
        from polyport.errors import ConfigError

        def maker(greeting):
            if greeting == "boom":
                raise KeyError("boom")
            if greeting == "mine":
                raise ConfigError("too bad")
            if greeting == "number":
                return 3
            def hello() -> str:
                """Hello."""
                return greeting
            return hello
        '''
    files: dict[str, str | bytes] = {"tools.py": tools}
    assert any(
        told in line for line in mistakes(f"name: a\nmodel: demo\ntools: [{{name: maker, args: {args}}}]\n", files)
    )
    for good in ("{greeting: hi}", "[{name: greeting, value: hi}]"):
        agent = agent_of(f"name: a\nmodel: demo\ntools: [{{name: maker, args: {good}}}]\n", files)
        assert agent.tools[0].name == "hello"


def test_what_code_says_of_a_value_from_the_environment_is_not_repeated():
    os.environ["TOY"] = "sk-very-secret"
    tools = "def maker(key):\n    raise ValueError(f'bad key {key}')\n"
    root = "name: a\nmodel: demo\ntools: [{name: maker, args: {key: [!env TOY]}}]\n"
    (line,) = mistakes(root, {"tools.py": tools})
    assert line.endswith("'maker' failed: ValueError") and "secret" not in line


def test_values_from_the_environment_reach_code_as_texts():
    os.environ["TOY"] = "007"
    tools = '''
        SEEN = []
        def maker(a, b):
            SEEN.append((a, b))
            return same
        def same() -> str:
            """Same."""
            return ""
        '''
    root = "name: a\nmodel: demo\ntools: [{name: maker, args: {a: !env TOY, b: 7}}]\n"
    agent = agent_of(root, {"tools.py": tools})
    assert agent.tools[0].fn.__globals__["SEEN"] == [("007", 7)]
