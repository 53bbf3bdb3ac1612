"""SKILL.md and the files beside it: what is a skill, and what a path may reach (spec core 6.5)."""

import os
from pathlib import Path
from typing import Any

import pytest

from polyport.errors import BadRequest, ConfigError, NotFound, TooLarge, Unavailable
from polyport.tools.skill_files import (
    BadSkill,
    Frontmatter,
    Skill,
    parse_skill,
    read_resource,
    read_skill,
    resource_names,
    split_tools,
)
from polyport.tools.skills import SkillToolset

MIB = 1024 * 1024


def head(**members: Any) -> str:
    lines = {"name": "greet", "description": "Say hello."} | members
    return "---\n" + "".join(f"{k}: {v}\n" for k, v in lines.items() if v is not None) + "---\nSay it.\n"


def make(folder: Path, text: str | None = None, **resources: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text or head(name=folder.name), encoding="utf-8")
    for name, content in resources.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    folder = make(tmp_path / "skills" / "greet", references__guide="Hello", assets__deep__x="deep")
    (tmp_path / "outside").write_text("secret")
    (folder / "private").write_text("private")
    return read_skill(folder, MIB)


class TestHead:
    def test_all_members(self):
        text = (
            "---\nname: greet\ndescription: >\n  Say hello:\n  at once.\nlicense: Apache-2.0\ncompatibility: Needs a mouth\n"
            "metadata:\n  version: 1.0\n  since: 2026-01-02\n  on: yes\n  empty:\nallowed-tools: Bash(git add:*), Read\n---\n\n"
            "# Greet\n\n---\nSay it.\n"
        )
        found, body = parse_skill(text, "greet")
        assert found == Frontmatter(
            name="greet",
            description="Say hello: at once.",
            license="Apache-2.0",
            compatibility="Needs a mouth",
            metadata={"version": "1.0", "since": "2026-01-02", "on": "yes", "empty": ""},
            allowed_tools=["Bash(git add:*)", "Read"],
        )
        assert body == "# Greet\n\n---\nSay it."

    @pytest.mark.parametrize("name", ["a", "7", "007", "on", "null", "a-b", "a1-2b-3", "x" * 64])
    def test_names_that_are_taken_as_they_are_written(self, name: str):
        if name == "null":
            with pytest.raises(BadRequest, match="name ''"):
                parse_skill(head(name=name), name)
            name = '"null"'
        assert parse_skill(head(name=name), name.strip('"'))[0].name == name.strip('"')

    @pytest.mark.parametrize(
        "name", ["", "A", "greet_it", "-a", "a-", "a--b", "a b", "ä", "a/b", "..", "x" * 65, "[a]", "a\u0661"]
    )
    def test_names_that_are_refused(self, name: str):
        with pytest.raises(BadRequest, match="name"):
            parse_skill(head(name=name), name)

    def test_the_name_is_that_of_the_folder(self):
        with pytest.raises(BadRequest, match="named 'greet', but its folder 'other'"):
            parse_skill(head(), "other")

    @pytest.mark.parametrize(
        ("members", "wrong"),
        [
            ({"description": None}, "description must have 1 to 1024 characters"),
            ({"description": '"  "'}, "description must have 1 to 1024"),
            ({"description": "x" * 1025}, "1 to 1024 characters; it has 1025"),
            ({"description": "[a, b]"}, "description must be text"),
            ({"compatibility": "x" * 501}, "compatibility may have 500"),
            ({"version": "1"}, "unknown key 'version' in the head; known are name, description"),
            ({"allowed_tools": "Read"}, "unknown key 'allowed_tools'"),
            ({"<<": "{name: other}"}, "unknown key '<<'"),
            ({"metadata": "text"}, "metadata must be a mapping"),
            ({"metadata": "{a: [1]}"}, r"metadata\.a must be text"),
            ({"metadata": "{a: 1, a: 2}"}, "'a' stands twice in metadata"),
            ({"allowed-tools": "{a: b}"}, "allowed-tools must be text"),
            ({"allowed-tools": "[[a]]"}, "allowed-tools must be text"),
            ({"license": "a: b: c"}, r"the head is not YAML: .* \(line 4\)"),
            ({"license": "!!python/object:os.system x"}, None),
            ({"license": "[" * 5000}, "the head is not YAML"),
            ({"license": "x" * 70_000}, "the head has more than 65536 bytes"),
        ],
    )
    def test_rules(self, members: dict[str, Any], wrong: str | None):
        if wrong is None:  # a tag is no more than a mark on the text: nothing is made of it
            assert parse_skill(head(**members), "greet")[0].license == "x"
            return
        with pytest.raises(BadRequest, match=wrong):
            parse_skill(head(**members), "greet")

    def test_limits_are_reached(self):
        found, _ = parse_skill(head(description="ä" * 1024, compatibility="ä" * 500), "greet")
        assert (len(found.description), len(found.compatibility)) == (1024, 500)

    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("", "first line must be ---"),
            ("name: greet\n", "first line must be ---"),
            ("\n---\nname: greet\n---\n", "first line must be ---"),
            ("----\nname: greet\n---\n", "first line must be ---"),
            ("---\nname: greet\n", "a line --- must end the head"),
            ("---\n---\nbody", "must be a mapping"),
            ("---\n- a\n---\n", "must be a mapping"),
            ("---\nname: greet\nname: greet\n---\n", "'name' stands twice"),
        ],
    )
    def test_marks(self, text: str, wrong: str):
        with pytest.raises(BadRequest, match=wrong):
            parse_skill(text, "greet")

    def test_FR_233_marks_of_other_systems(self):
        found, body = parse_skill("\ufeff" + head(description="你好 😀").replace("\n", "\r\n"), "greet")
        assert (found.description, body) == ("你好 😀", "Say it.")

    @pytest.mark.parametrize(
        ("text", "tools"),
        [
            ("", []),
            ("Read", ["Read"]),
            ("Read Write,Edit , Grep\tX", ["Read", "Write", "Edit", "Grep", "X"]),
            ("Bash(git add:*, ls (a b)), Read", ["Bash(git add:*, ls (a b))", "Read"]),
            ("A) B(c d", ["A)", "B(c d"]),
        ],
    )
    def test_allowed_tools(self, text: str, tools: list[str]):
        assert split_tools(text) == tools
        assert parse_skill(head(**{"allowed-tools": '["a b", c]'}), "greet")[0].allowed_tools == ["a b", "c"]


class TestFiles:
    def test_resources(self, skill: Skill):
        assert read_resource(skill, "references/guide", MIB) == b"Hello"
        assert read_resource(skill, "./assets//deep/../deep/x", MIB) == b"deep"
        assert resource_names(skill) == ["assets/deep/x", "references/guide"]
        assert resource_names(skill, limit=1) == ["assets/deep/x", "..."]

    @pytest.mark.parametrize(
        "path",
        [
            "",
            ".",
            "SKILL.md",
            "private",
            "references",
            "references/",
            "references/../SKILL.md",
            "references/../private",
            "references/../../../outside",
            "../outside",
            "/etc/hosts",
            "//etc/hosts",
            "references\\guide",
            "references/..\\..\\x",
            "References/guide",
            "references/\0",
            "C:/x",
        ],
    )
    def test_FR_194_paths_that_are_refused(self, skill: Skill, path: str):
        with pytest.raises(BadRequest, match="is not a file of a skill"):
            read_resource(skill, path, MIB)

    def test_FR_194_links_lead_nowhere_else(self, skill: Skill, tmp_path: Path):
        references = skill.folder / "references"
        (references / "out").symlink_to(tmp_path / "outside")
        (references / "up").symlink_to("../private")
        (references / "head").symlink_to("../SKILL.md")
        (references / "folder").symlink_to(tmp_path)
        (references / "inside").symlink_to("guide")
        (skill.folder / "scripts").symlink_to(tmp_path)
        for path in (
            "references/out",
            "references/up",
            "references/head",
            "references/folder/outside",
            "scripts/outside",
        ):
            with pytest.raises(BadRequest, match="leads out of the skill"):
                read_resource(skill, path, MIB)
        assert read_resource(skill, "references/inside", MIB) == b"Hello"
        assert "scripts/outside" not in resource_names(skill)

    def test_what_is_no_file(self, skill: Skill):
        os.mkfifo(skill.folder / "references" / "pipe")
        (skill.folder / "references" / "loop").symlink_to("loop")
        with pytest.raises(BadRequest, match="is not a file"):
            read_resource(skill, "references/pipe", MIB)
        for path in ("references/none", "references/guide/x", "scripts/x"):
            with pytest.raises(NotFound, match="its files are: assets/deep/x, references/guide"):
                read_resource(skill, path, MIB)
        with pytest.raises(BadRequest, match="is not a file"):
            read_resource(skill, "assets/deep", MIB)
        with pytest.raises(
            Unavailable, match=r"'references/loop' of the skill 'greet' cannot be read: Too many levels"
        ):
            read_resource(skill, "references/loop", MIB)

    def test_a_file_may_have_ten_MiB(self, skill: Skill, tmp_path: Path):
        assert SkillToolset(tmp_path / "skills").max_file_bytes == 10 * MIB
        big = skill.folder / "assets" / "big"
        big.write_bytes(b"x" * 100)
        assert len(read_resource(skill, "assets/big", 100)) == 100
        with pytest.raises(TooLarge, match="more than 99 bytes"):
            read_resource(skill, "assets/big", 99)
        with pytest.raises(BadSkill, match=r"greet/SKILL.md: 'SKILL.md' has more than 10 bytes"):
            read_skill(skill.folder, 10)

    def test_FR_233_bad_bytes_are_replaced(self, tmp_path: Path):
        folder = make(tmp_path / "greet")
        (folder / "SKILL.md").write_bytes(head().encode() + b"caf\xe9 \xe4\xbd\xa0")
        assert read_skill(folder, MIB).instructions == "Say it.\ncaf\ufffd 你"

    def test_a_head_that_lies_elsewhere(self, skill: Skill, tmp_path: Path):
        folder = tmp_path / "skills" / "other"
        folder.mkdir()
        (folder / "SKILL.md").symlink_to(skill.folder / "SKILL.md")
        with pytest.raises(BadSkill, match=r"other/SKILL.md: .*leads out"):
            read_skill(folder, MIB)
        (folder / "SKILL.md").unlink()
        (folder / "SKILL.md").symlink_to("nowhere")
        with pytest.raises(BadSkill, match=r"other/SKILL.md: No such file"):
            read_skill(folder, MIB)
        (folder / "SKILL.md").unlink()
        (folder / "SKILL.md").mkdir()
        with pytest.raises(BadSkill, match=r"other/SKILL.md: .*is not a file"):
            read_skill(folder, MIB)


class TestToolset:
    def test_a_folder_of_skills_or_a_skill(self, tmp_path: Path):
        make(tmp_path / "more" / "b")
        make(tmp_path / "more" / "a")
        (tmp_path / "more" / "notes").mkdir()
        (tmp_path / "more" / "file").write_text("")
        make(tmp_path / "z" / "linked")
        (tmp_path / "more" / "linked").symlink_to(tmp_path / "z" / "linked")
        make(tmp_path / "single")
        toolset = SkillToolset(tmp_path / "single", str(tmp_path / "more"))
        assert list(toolset.skills) == ["a", "b", "linked", "single"]
        assert toolset.problems == []

    def test_core_12_35_a_malformed_skill_is_reported_and_left_out(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        make(tmp_path / "good")
        make(tmp_path / "bad", "no head")
        make(tmp_path / "named", head(name="other"))
        toolset = SkillToolset(tmp_path)
        assert list(toolset.skills) == ["good"]
        assert toolset.problems == [
            "bad/SKILL.md: the first line must be ---",
            "named/SKILL.md: the skill is named 'other', but its folder 'named'; they must be the same",
        ]
        assert "bad/SKILL.md: the first line must be ---" in caplog.text

    def test_two_skills_of_one_name(self, tmp_path: Path):
        make(tmp_path / "one" / "greet")
        make(tmp_path / "two" / "greet")
        with pytest.raises(ConfigError, match=r"two skills are named 'greet': .*one/greet and .*two/greet; rename one"):
            SkillToolset(tmp_path / "one", tmp_path / "two")

    def test_folders_that_are_not_there(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        for folders in ((), (tmp_path / "none",), (tmp_path / "file",)):
            with pytest.raises(ConfigError, match="folder"):
                SkillToolset(*folders)
        with pytest.raises(ConfigError, match="max_file_bytes is 0"):
            SkillToolset(tmp_path, max_file_bytes=0)

    async def test_reload_reads_again_and_keeps_what_there_was_when_it_fails(self, tmp_path: Path):
        make(tmp_path / "one" / "greet")
        toolset = SkillToolset(tmp_path / "one", tmp_path)
        make(tmp_path / "one" / "wave")
        await toolset.reload()
        assert list(toolset.skills) == ["greet", "wave"]
        make(tmp_path / "wave")
        make(tmp_path / "one" / "more")
        with pytest.raises(BadRequest, match="two skills are named 'wave'"):
            await toolset.reload()
        assert list(toolset.skills) == ["greet", "wave"]
        (tmp_path / "one").rename(tmp_path / "gone")
        with pytest.raises(NotFound):
            await toolset.reload()
        assert list(toolset.skills) == ["greet", "wave"]
