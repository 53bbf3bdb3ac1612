"""The loader: every way to name an agent, and what a user is told when it does not load (FR-233; requests: loader, say the
real error)."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyport import App, LlmAgent
from polyport.config.load import load
from polyport.config.text import readable
from polyport.errors import ConfigError
from polyport.ports.agent import Agent

AGENT = 'from polyport import LlmAgent\nroot_agent = LlmAgent(name="{name}", model="demo")\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; what the loader leaves in the process is taken back."""
    modules, environ = set(sys.modules), dict(os.environ)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    os.environ.clear()
    os.environ.update(environ)


def write(path: str, text: str = "", name: str = "one") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + AGENT.format(name=name), encoding="utf-8")
    return file


def package(*folders: str) -> None:
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "__init__.py").touch()


def names(*words: str) -> dict[str, str]:
    """app name -> the name of its agent."""
    found = load(list(words))
    assert not isinstance(found, App)
    return {app: agent.name for app, agent in found.items()}


async def test_files_of_one_name_beside_two_agents_do_not_get_in_each_others_way() -> None:
    agent = "from words import SAID\nfrom words.more import MORE\nfrom polyport import LlmAgent\n"
    agent += 'root_agent = LlmAgent(name="a", model="demo", instruction=f"{SAID} {MORE}")\n'
    for folder, said in (("one", "first"), ("two", "second")):
        package(f"{folder}/words")
        Path(f"{folder}/agent.py").write_text(agent, encoding="utf-8")
        Path(f"{folder}/words/__init__.py").write_text(f"SAID = {said!r}\n", encoding="utf-8")
        Path(f"{folder}/words/more.py").write_text(f"MORE = {said!r}\n", encoding="utf-8")
    found = load(["one", "two"])
    assert not isinstance(found, App)
    told = {app: agent.instruction for app, agent in found.items() if isinstance(agent, LlmAgent)}
    assert told == {"one": "first first", "two": "second second"}
    assert importlib.import_module("words").SAID == "first"


def failure(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(list(words))
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "word",
    ["bots/one", "bots/one/", "bots/one/agent.py", "bots/one/agent.py:root_agent", "bots/one:root_agent", "bots"],
)
def test_an_agent_by_its_folder_its_file_or_the_folder_above(word: str):
    write("bots/one/agent.py")
    assert names(word) == {"one": "one"}


@pytest.mark.parametrize("word", ["mod", "mod:root_agent", "mod.py", "./mod.py:root_agent"])
def test_an_agent_by_its_module_or_file(word: str):
    write("mod.py")
    assert names(word) == {"one": "one"}


def test_the_current_folder_is_a_word(monkeypatch: pytest.MonkeyPatch, here: Path):
    write("one/agent.py")
    monkeypatch.chdir(here / "one")
    assert names(".") == {"one": "one"}


def test_a_dotted_module_and_the_file_of_a_package_are_members_of_it():
    package("team/desk")
    package("team")
    Path("team/shared.py").write_text("NAME = 'shared'\n")
    write(
        "team/desk/agent.py", "from ..shared import NAME\nfrom team.shared import NAME as SAME\nassert NAME is SAME\n"
    )
    for word in ("team.desk.agent:root_agent", "team.desk.agent", "team/desk", "team/desk/agent.py"):
        assert list(names(word).values()) == ["one"]


def test_a_package_may_show_its_agent_in_init():
    write("team/inner.py")
    Path("team/__init__.py").write_text("from .inner import root_agent\n")
    assert names("team") == {"team": "one"}


def test_a_folder_without_init_takes_relative_and_bare_imports():
    Path("one").mkdir()
    Path("one/tools.py").write_text("X = 1\n")
    write("one/agent.py", "from .tools import X\nfrom tools import X as Y\n")
    assert names("one") == {"one": "one"}


def test_folders_of_folders_leave_out_what_has_no_agent():
    for name in ("b", "a"):
        write(f"bots/{name}/agent.py", name=name)
    Path("bots/data").mkdir()
    Path("bots/notes.txt").touch()
    package("bots")
    assert names("bots") == {"a": "a", "b": "b"}


def test_agents_of_the_same_name_in_two_folders_stay_apart():
    for where, tool in (("x", "1"), ("y", "2")):
        package(f"{where}/bot")
        Path(f"{where}/bot/tools.py").write_text(f"DESCRIPTION = 'of {where}'\n")
        code = "from polyport import LlmAgent\nfrom .tools import DESCRIPTION\n"
        Path(f"{where}/bot/agent.py").write_text(
            f"{code}bot_{tool} = LlmAgent(name='bot_{tool}', model='demo', description=DESCRIPTION)\n"
        )
    found = load(["x/bot:bot_1", "y/bot:bot_2"])
    assert isinstance(found, dict)
    assert {name: agent.description for name, agent in found.items()} == {"bot_1": "of x", "bot_2": "of y"}
    message = failure("x/bot", "y/bot")
    assert "'bot'" in message and str(Path("x/bot").resolve()) in message and str(Path("y/bot").resolve()) in message


def test_the_same_agent_twice_is_one():
    write("bots/one/agent.py")
    assert names("bots", "bots/one") == {"one": "one"}


@pytest.mark.parametrize("name", ["json", "email", "test", "types"])
def test_a_folder_that_is_called_like_a_standard_module(name: str):
    Path(name).mkdir()
    (Path(name) / "tools.py").write_text("X = 1\n")
    write(
        f"{name}/agent.py",
        f"from .tools import X\nimport {name}\nassert 'site' not in str({name}.__spec__.origin or '')\n",
    )
    assert names(name) == {name: "one"}
    package(name)
    assert names(name) == {name: "one"}


def test_a_file_that_is_called_like_a_standard_module_does_not_hide_it():
    write("secrets.py", "import random\n")
    write("random.py", name="two")
    assert names("random.py") == {"two": "two"}
    assert names("secrets.py") == {"one": "one"}
    import random

    assert hasattr(random, "choice")


def test_a_standard_module_hides_a_file_and_the_message_says_so():
    Path("calendar.py").write_text("def free(): ...\n")
    write("bot.py", "from calendar import free\n")
    message = failure("bot.py")
    assert "calendar.py" in message and "another name" in message


def test_a_folder_that_is_called_like_an_installed_package_does_not_hide_it():
    write("anyio/agent.py", "import anyio\nassert anyio.run\n")
    write("sniffio/agent.py", "import sniffio\n")
    assert names("anyio", "sniffio") == {"anyio": "one", "sniffio": "one"}


@pytest.mark.parametrize("folder", ["my agent", "wetter-größe", "天气 🌦", "v1.2"])
def test_FR_233_folders_with_spaces_dots_and_unicode(folder: str):
    write(f"{folder}/agent.py", "from .größe import X\n")
    Path(folder, "größe.py").write_text("X = '你好'\n", encoding="utf-8")
    assert names(folder) == {folder: "one"}
    package(folder)
    assert names(folder) == {folder: "one"}


def test_FR_233_undecoded_bytes_of_an_argument_are_read_as_utf8():
    assert readable("größe".encode().decode("ascii", "surrogateescape")) == "größe"
    assert readable("größe") == "größe"
    assert readable("\ud800") == "?"
    assert readable("\udcff") == "\ufffd"


def test_an_agent_elsewhere_does_not_need_the_current_folder(tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "one").mkdir()
    (elsewhere / "one/helper_of_one.py").write_text("X = 1\n")
    (elsewhere / "one/agent.py").write_text("from helper_of_one import X\n" + AGENT.format(name="one"))
    assert names(str(elsewhere / "one")) == {"one": "one"}


def test_a_link_to_a_folder_keeps_working(here: Path):
    write("real/agent.py")
    (here / "link").symlink_to(here / "real")
    assert names("link") == {"real": "one"}


# ---- .env


def test_env_beside_the_agent_is_read_first_and_keeps_what_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOY_SET", "outside")
    write("one/agent.py", "import os\nassert os.environ['TOY_KEY'] == 'grün', os.environ['TOY_KEY']\n")
    Path("one/.env").write_bytes("\ufeffTOY_KEY=grün\nTOY_SET=file\nTOY_BARE\n".encode())
    assert names("one") == {"one": "one"}
    assert os.environ["TOY_SET"] == "outside" and "TOY_BARE" not in os.environ


@pytest.mark.parametrize("word", ["bots/one", "bots/one/agent.py", "bots.one.agent:root_agent"])
def test_env_of_the_folders_above_counts_up_to_the_current_one(word: str):
    write("bots/one/agent.py", "import os\nassert os.environ['TOY_A'] == 'near' and os.environ['TOY_B'] == 'far'\n")
    Path("bots/one/.env").write_text("TOY_A=near\n")
    Path(".env").write_text("TOY_A=far\nTOY_B=far\n")
    assert list(names(word).values()) == ["one"]


def test_two_env_files_that_disagree_are_told_without_their_values(caplog: pytest.LogCaptureFixture):
    for name in ("a", "b"):
        write(f"{name}/agent.py", name=name)
        Path(name, ".env").write_text(f"TOY_KEY=secret-{name}\n")
    load(["a", "b"])
    assert os.environ["TOY_KEY"] == "secret-a"
    assert "TOY_KEY" in caplog.text and "b/.env" in caplog.text and "secret" not in caplog.text


def test_FR_233_bad_bytes_in_env_are_replaced():
    write("one/agent.py")
    Path("one/.env").write_bytes(b"TOY_KEY=a\xffb\n")
    load(["one"])
    assert os.environ["TOY_KEY"] == "a\ufffdb"


# ---- what goes wrong


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import no_such_module\n", ["bot.py, line 1: import no_such_module", "No module named 'no_such_module'"]),
        ("x = (\n", ["bot.py, line 1: x = (", "SyntaxError"]),
        ("x = 1\n\n1 / 0\n", ["bot.py, line 3: 1 / 0", "ZeroDivisionError: division by zero"]),
        ("import sys\nsys.exit('no key')\n", ["bot.py, line 2: sys.exit('no key')", "SystemExit: no key"]),
        ("from broken import x\n", ["broken.py, line 2: raise KeyError('deep')", "KeyError"]),
        ("import json\njson.loads('{')\n", ["bot.py, line 2: json.loads('{')", "JSONDecodeError"]),
        ("from . import x\n", ["bot.py, line 1: from . import x", "no known parent package"]),
        ("from polyport import LlmAgent\nLlmAgent(nam='x')\n", ["bot.py, line 2: LlmAgent(nam='x')", "nam"]),
        ("from polyport import Nope\n", ["bot.py, line 1: from polyport import Nope", "Nope"]),
    ],
)
def test_an_error_in_the_users_file_is_told_with_its_line(code: str, told: list[str]):
    Path("broken.py").write_text("\nraise KeyError('deep')\n")
    write("bot.py", code)
    for word in ("bot.py", "bot"):
        message = failure(word)
        assert message.startswith((str(Path("bot.py").resolve()), "bot could not"))
        for part in told:
            assert part in message


def test_an_error_inside_a_package_is_not_taken_for_a_missing_module():
    write("team/agent.py")
    Path("team/__init__.py").write_text("import no_such_module\n")
    for word in ("team", "team.agent", "team.agent:root_agent", "team/agent.py"):
        message = failure(word)
        assert "no_such_module" in message and "__init__.py, line 1" in message, word


def test_a_file_that_failed_can_be_mended_and_loaded_again():
    write("bot.py", "1 / 0\n")
    failure("bot.py")
    Path("bot.py").write_text("# mended\n" + AGENT.format(name="one"))
    os.utime("bot.py", (1, 1))
    assert names("bot.py") == {"one": "one"}


def test_bytes_that_are_no_utf8_are_told():
    Path("bot.py").write_bytes(b"x = '\xff'\n")
    assert "utf-8" in failure("bot.py")
    Path("nul.py").write_bytes(b"x = 1\0\n")
    assert "null bytes" in failure("nul.py")


def test_a_word_that_names_nothing_lists_what_is_near():
    write("bots/weather/agent.py")
    write("bots/travel/agent.py")
    write("desk.py")
    Path("test_desk.py").touch()
    message = failure("dessk")
    assert "bots" in message and "desk.py" in message and "test_desk" not in message
    assert "did you mean bots/weather?" in failure("bots/wether")
    assert "bots/travel, bots/weather" in failure("bots/zzz")
    assert "did you mean desk.py:x?" in failure("desc.py:x")
    assert "there is no file nowhere/x.py" in failure("nowhere/x.py")
    Path("empty").mkdir()
    assert "In empty there is: no agent" in failure("empty/zzz")


def test_an_attribute_that_is_not_there_lists_the_agents():
    write("bot.py", "X = 5\n")
    message = failure("bot.py:rot_agent")
    assert "did you mean 'root_agent'?" in message and "Its agents are: root_agent" in message
    assert "of type int" in failure("bot.py:X")


def test_a_module_without_an_agent_says_what_it_has():
    Path("bot.py").write_text("import os\nclass Thing: ...\ndef make(): ...\n")
    message = failure("bot.py")
    assert "root_agent" in message and "Thing, make" in message and "os" not in message.rpartition("it has:")[2]
    Path("bot2.py").write_text("root_agent = 'later'\n")
    assert "'root_agent' is of type str" in failure("bot2.py")
    Path("empty").mkdir()
    assert "has no agent.py" in failure("empty")
    Path("notes.txt").touch()
    assert "not a .py file" in failure("notes.txt")


def test_of_several_agents_the_one_above_the_others_is_taken():
    code = (
        "from polyport import LlmAgent, SequentialAgent\n"
        "a = LlmAgent(name='a', model='demo')\nb = LlmAgent(name='b', model='demo')\n"
    )
    Path("team.py").write_text(code + "both = SequentialAgent(name='both', sub_agents=[a, b])\nsame = both\n")
    assert names("team.py") == {"both": "both"}
    Path("peers.py").write_text(code)
    message = failure("peers.py")
    assert "peers.py:a" in message and "a, b" in message
    assert names("peers.py:b") == {"b": "b"}


def test_app_then_root_agent_then_agent():
    Path("three.py").write_text(
        "from polyport import App, LlmAgent\nagent = LlmAgent(name='third', model='demo')\n"
        "root_agent = LlmAgent(name='second', model='demo')\napp = App(root_agent)\n"
    )
    found = load(["three.py"])
    assert isinstance(found, App) and list(found.trees) == ["second"]
    assert names("three.py:root_agent", "three.py:agent") == {"second": "second", "third": "third"}


def test_an_app_is_served_alone():
    write("bots/one/agent.py")
    Path("bots/own").mkdir()
    Path("bots/own/agent.py").write_text(
        "from polyport import App, LlmAgent\napp = App(LlmAgent(name='x', model='demo'))\n"
    )
    assert isinstance(load(["bots/own"]), App)
    for words in (["bots/own", "bots/one"], ["bots"]):
        assert "give it alone" in failure(*words)


def test_agents_of_ones_own_class_are_agents():
    Path("own.py").write_text(
        "from polyport import Agent\nclass Mine(Agent):\n    async def run(self, ctx): ...\nmine = Mine(name='mine')\n"
    )
    found = load(["own.py"])
    assert isinstance(found, dict) and isinstance(found["mine"], Agent)
