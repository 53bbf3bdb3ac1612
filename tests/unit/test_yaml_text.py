"""The text of agent files: what a word means, places, limits, the environment (spec core 12.30, FR-233)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyport.config.importing import LoadError
from polyport.config.yaml_text import MAX_BYTES, MAX_DEPTH, MAX_NODES, Problems, read_file, read_text
from support.projects import clean_process


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with clean_process():
        yield


def value(text: str) -> Any:
    problems = Problems()
    node = read_text(text, "f.yaml", problems)
    assert node is not None and not problems.found, problems.found
    return node.value()


def refused(text: str) -> list[str]:
    problems = Problems()
    read_text(text, "f.yaml", problems)
    with pytest.raises(LoadError) as caught:
        problems.check("f.yaml")
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("1:30", "1:30"),
        ("2001-01-02", "2001-01-02"),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("-3", -3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ("'true'", "true"),
        ('"12"', "12"),
        ("!!str 12", "12"),
        ("=", "="),
        ("9" * 2000, "9" * 2000),
    ],
)
def test_words_mean_what_yaml_1_2_says(word: str, meant: Any):
    found = value(f"k: {word}\n")["k"]
    assert found == meant and type(found) is type(meant)


def test_keys_are_texts_as_they_are_written():
    assert value("yes: 1\n007: 2\n'null': 3\n1.0: 4\n") == {"yes": 1, "007": 2, "null": 3, "1.0": 4}


def test_anchors_and_merges():
    text = "base: &b {a: 1, l: [x]}\none: {<<: *b, a: 2}\ntwo: {<<: [*b, {c: 3}]}\nsame: *b\n"
    found = value(text)
    assert found["one"] == {"a": 2, "l": ["x"]} and found["two"] == {"a": 1, "l": ["x"], "c": 3}
    assert found["same"] == {"a": 1, "l": ["x"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: the key 'a' is given twice; first in line 1"),
        ("a:\n  b: 1\n  b: 1\n", "f.yaml:3:3: the key 'b' is given twice; first in line 2"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document begins here"),
        ("a: !!python/object/apply:os.system [ls]\n", "f.yaml:1:4: the tag '!!python/object/apply:os.system' is not"),
        ("a: !mine x\n", "f.yaml:1:4: the tag '!mine' is not known"),
        ("[a]: 1\n", "f.yaml:1:1: a key must be a text, not a list"),
        ("a: *b\n", "f.yaml:1:4: there is no &b before this *b"),
        ("a: &b [*b]\n", "f.yaml:1:8: *b stands inside of what it stands for"),
        ("a: b\n c: d\n", "f.yaml:2:3: is not YAML: mapping values are not allowed"),
        ("a:\n\tb: 1\n", "a line begins with a tab"),
        ("a: {b: 1\n", "is not YAML"),
        ("a: 'x\n", "is not YAML"),
        ("a: \x07\n", "is not YAML"),
        ("a: {<<: 3}\n", "<< takes a mapping, not '3'"),
        ("", "f.yaml:1:1: is empty"),
        ("# nothing\n", "is empty"),
        ("a: !env 1x\n", "!env takes the name of a variable"),
    ],
)
def test_what_is_refused_says_where(text: str, told: str):
    lines = refused(text)
    assert any(told in line for line in lines), lines


def test_an_alias_bomb_is_refused_before_it_costs_anything():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert f"more than {MAX_NODES} values" in refused("\n".join(rows))[0]


def test_depth_and_size_are_limited(tmp_path: Path):
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    assert f"nested more than {MAX_DEPTH} deep" in refused(deep)[0]
    assert value("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert "nest" in refused("[" * 100_000)[0]
    chain = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert f"nested more than {MAX_DEPTH} deep" in refused("\n".join(chain))[0]
    assert f"more than {MAX_NODES} values" in refused(f"[{'x, ' * MAX_NODES}]")[0]
    (tmp_path / "big.yaml").write_text("a: " + "x" * MAX_BYTES)
    problems = Problems()
    assert read_file(tmp_path / "big.yaml", "big.yaml", problems) is None
    assert f"larger than {MAX_BYTES} bytes" in problems.found[0][3]


def test_FR_233_utf8_with_and_without_mark_bad_bytes_and_crlf(tmp_path: Path):
    file = tmp_path / "f.yaml"
    for body, meant in (
        ("\ufeffa: 你好 🌦\r\nb: |\r\n  x\r\n  y\r\n".encode(), {"a": "你好 🌦", "b": "x\ny\n"}),
        (b"a: x\xff\n", {"a": "x\ufffd"}),
    ):
        file.write_bytes(body)
        problems = Problems()
        node = read_file(file, "f.yaml", problems)
        assert node is not None and node.value() == meant and not problems.found


def test_the_environment_comes_in_by_its_tag_only():
    os.environ.update(TOY="t0", TOY_PORT="80", TOY_EMPTY="")
    text = (
        "a: !env TOY\nb: !env 'Bearer ${TOY}:${TOY_PORT}'\nc: ${TOY}\nd: !env TOY_PORT\ne: !env '${NONE_SUCH:-x y}'\n"
    )
    found = value(text)
    assert found == {"a": "t0", "b": "Bearer t0:80", "c": "${TOY}", "d": "80", "e": "x y"}
    assert value("a: !env '${TOY_EMPTY:-full}'\nb: !env TOY_EMPTY\n") == {"a": "full", "b": ""}
    assert "environment variable NONE_SUCH is not set" in refused("a: !env NONE_SUCH\n")[0]


def test_what_comes_from_the_environment_is_never_read_as_yaml():
    os.environ["TOY"] = "{a: [1]}\nb: *x"
    assert value("a: !env TOY\n") == {"a": "{a: [1]}\nb: *x"}


def test_many_mistakes_are_told_at_once_and_not_without_end():
    lines = refused("\n".join(["a: 1"] * 50))
    assert lines[0].startswith("f.yaml:2:1:") and lines[-1] == "and 19 more" and len(lines) == 31


@given(st.text(max_size=200))
def test_no_text_does_more_than_be_refused(text: str):
    problems = Problems()
    node = read_text(text, "f.yaml", problems)
    assert node is not None or problems.found
    if node is not None:
        node.value()
