"""Whatever a page sends to the YAML editor, and whatever a name is: a clear refusal, or a file inside the folder."""

from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport.errors import BadRequest
from polyport.evals.folder import AppFolder
from polyport.protocols.evals.builder import uploads
from polyport.protocols.evals.drafts import check_yaml, save

ROOT = Path("/nowhere/agents")
HEADS = st.sampled_from(
    [
        b"--x",
        b"--x--",
        b"\r\n",
        b"\n",
        b'Content-Disposition: form-data; name="files"; filename="a.yaml"',
        b"a: 1",
        b"filename*=utf-8''%",
    ]
)
PIECES = st.lists(st.one_of(HEADS, st.binary(max_size=20)), max_size=12).map(b"".join)
NAMES = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(["..", ".", "/", "\\", "a", ".yaml", "app", "\0"]), max_size=8).map("".join),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=10),
        st.sampled_from(["os.system", "app.tools.f", "../x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["code", "tools", "name", "command", "config_path", "x", "a_callbacks"]), inner, max_size=3
        ),
    ),
    max_leaves=12,
)


@given(
    kind=st.sampled_from(
        ["multipart/form-data; boundary=x", 'multipart/form-data; boundary="x', "multipart/form-data"]
    ),
    body=PIECES,
)
@settings(max_examples=300)
def test_any_upload_is_files_or_a_refusal(kind: str, body: bytes):
    try:
        files = uploads(kind, body)
    except BadRequest:
        return
    assert all(isinstance(name, str) and isinstance(text, bytes) for name, text in files.items())


@given(
    text=st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-[]{}&*!|>#'\"%@\n ,?\t", max_size=40).map(str.encode))
)
@settings(max_examples=300)
def test_any_text_is_checked_without_a_crash(text: bytes):
    try:
        check_yaml("app", "a.yaml", text)
    except BadRequest:
        return
    yaml.load(text, yaml.CSafeLoader)  # the parser by which agent files are read


def names_code(value: object, key: str = "") -> bool:
    """Whether plain data names the code of another, a program or a file outside, by a simple reading."""
    if isinstance(value, dict):
        below = key if key in ("code", "tools", "a_callbacks") else ""
        return any(
            k == "command" or names_code(v, k) or (k == "name" and below and v == "os.system") for k, v in value.items()
        )
    if isinstance(value, list):
        return any(names_code(item, key) for item in value)
    return (key in ("code", "tools", "a_callbacks") and value == "os.system") or (
        key == "config_path" and value == "../x"
    )


@given(value=VALUES)
@settings(max_examples=300)
def test_what_names_code_programs_or_files_outside_never_passes(value: object):
    text = yaml.safe_dump(value).encode()
    if not names_code(value):
        return
    try:
        check_yaml("app", "a.yaml", text)
    except BadRequest:
        return
    raise AssertionError(text)


@given(name=NAMES)
@settings(max_examples=300)
def test_no_name_leads_out_of_the_folder(name: str):
    for act in (
        lambda: AppFolder.below(ROOT, name).path,
        lambda: AppFolder.below(ROOT, "app")._test_path(name),  # pyright: ignore[reportPrivateUsage]
    ):
        try:
            path = act()
        except BadRequest:
            continue
        assert path.is_relative_to(ROOT) and path != ROOT and ".." not in path.parts, quote(name)
    with pytest.raises(BadRequest):  # of the name, or of the text
        save(AppFolder.below(ROOT, "app"), {name: b"a: ["}, tmp=False)
