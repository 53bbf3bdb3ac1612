"""What every artifact and memory store must do, as tests. Documented in `polyport.testing.suites`."""

from datetime import UTC, datetime
from functools import partial

import pytest
from msgspec import structs

from polyport.data.content import Blob, Content, FunctionCall, Part, user_text
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey
from polyport.errors import BadRequest, NotFound
from polyport.ports.stores import ArtifactStore, ArtifactVersion, MemoryStore
from polyport.testing.samples import KEY, Clock, Suite, note, together

PNG = Part(inline_data=Blob(mime_type="image/png", data=bytes(range(256)), display_name="dot"))
ELSEWHERE = KEY._replace(id="s2")


class ArtifactStoreSuite(Suite):
    """All that the port ArtifactStore asks for; statements 117 and 118 of spec core 11."""

    async def test_core_117_versions_count_from_1_and_the_latest_is_the_default(self, store: ArtifactStore) -> None:
        for number in (1, 2, 3):
            assert await store.save(KEY, "a.txt", Part(text=f"text {number}")) == number
        assert await store.load(KEY, "a.txt") == Part(text="text 3")
        assert await store.load(KEY, "a.txt", 1) == Part(text="text 1")
        await store.delete(KEY, "a.txt", 3)
        assert await store.load(KEY, "a.txt") == Part(text="text 2")
        for missing in (3, 4):
            with pytest.raises(NotFound, match=f"'a.txt' of version {missing}"):
                await store.load(KEY, "a.txt", missing)
        assert [v.version for v in await store.versions(KEY, "a.txt")] == [1, 2]
        assert await store.save(KEY, "a.txt", Part(text="new")) == 4  # a deleted number is not used again

    async def test_core_117_delete_all_and_what_is_not_there(self, store: ArtifactStore) -> None:
        await store.save(KEY, "a.txt", PNG)
        await store.save(KEY, "a.txt", PNG)
        await store.delete(KEY, "a.txt")
        await store.delete(KEY, "a.txt")
        await store.delete(KEY, "a.txt", 7)
        await store.delete(KEY, "never")
        with pytest.raises(NotFound):
            await store.load(KEY, "a.txt")
        with pytest.raises(NotFound):
            await store.load(KEY, "never")
        assert (await store.names(KEY), await store.versions(KEY, "a.txt")) == ([], [])
        assert await store.save(KEY, "a.txt", PNG) == 3
        assert await store.names(KEY) == ["a.txt"]

    async def test_text_stays_text_and_bytes_stay_bytes(self, store: ArtifactStore) -> None:
        for part in (Part(text="one\r\ntwo\n"), Part(text=""), PNG, Part(inline_data=Blob(mime_type="a/b", data=b""))):
            await store.save(KEY, "x", part)
            assert await store.load(KEY, "x") == part
        await store.save(KEY, "x", Part(inline_data=Blob(data=b"?")))
        assert await store.load(KEY, "x") == Part(inline_data=Blob(mime_type="application/octet-stream", data=b"?"))

    async def test_FR_016_user_files_are_seen_in_all_sessions_of_the_user(self, store: ArtifactStore) -> None:
        for key, name in ((KEY, "user:b.txt"), (KEY, "b.txt"), (KEY, "a.txt"), (ELSEWHERE, "c.txt")):
            await store.save(key, name, Part(text=f"{key.id} {name}"))
        assert await store.names(KEY) == ["a.txt", "b.txt", "user:b.txt"]
        assert await store.names(ELSEWHERE) == ["c.txt", "user:b.txt"]
        assert await store.names(KEY._replace(id="any")) == ["user:b.txt"]
        assert await store.load(ELSEWHERE, "user:b.txt") == Part(text="s1 user:b.txt")
        assert await store.load(KEY, "b.txt") == Part(text="s1 b.txt")
        for other in (KEY._replace(user="bob"), KEY._replace(app="other")):
            assert await store.names(other) == []
        assert await store.save(ELSEWHERE, "user:b.txt", PNG) == 2
        assert await store.save(KEY._replace(id="user"), "b.txt", PNG) == 1  # such a session is nothing special
        await store.delete(ELSEWHERE, "user:b.txt")
        assert await store.names(KEY) == ["a.txt", "b.txt"]

    async def test_FR_016_parallel_saves_get_distinct_versions(self, store: ArtifactStore) -> None:
        saves = [partial(store.save, KEY, "a.txt", Part(text=str(number))) for number in range(20)]
        versions = await together(*saves)
        assert sorted(versions) == list(range(1, 21))
        for number, version in enumerate(versions):
            assert await store.load(KEY, "a.txt", version) == Part(text=str(number))

    async def test_versions_tell_their_metadata(self, store: ArtifactStore, clock: Clock) -> None:
        custom = {"source": {"page": 1}}
        await store.save(KEY, "a b", Part(text="x"), custom)
        custom["source"]["page"] = 2
        clock.now += 1
        await store.save(KEY, "a b", PNG)
        first, second = await store.versions(KEY, "a b")
        assert first == ArtifactVersion(
            version=1,
            mime_type="text/plain",
            canonical_uri="artifact://app/users/ann/sessions/s1/a%20b/versions/1",
            create_time=clock.now - 1,
            custom_metadata={"source": {"page": 1}},
        )
        assert (second.mime_type, second.create_time, second.custom_metadata) == ("image/png", clock.now, {})
        first.custom_metadata["source"]["page"] = 3
        assert (await store.versions(KEY, "a b"))[0].custom_metadata == {"source": {"page": 1}}

    async def test_core_118_what_is_missing_is_listed_in_order(self, store: ArtifactStore) -> None:
        nobody = SessionKey("", "", "")
        with pytest.raises(BadRequest, match="app, user, session id, file name, part"):
            await store.save(nobody, "", Part())
        with pytest.raises(BadRequest, match="empty: user, part"):
            await store.save(KEY._replace(user=""), "a", Part(thought=True))
        for call in (store.load, store.delete, store.versions):
            with pytest.raises(BadRequest, match=r"app, user, session id, file name$"):
                await call(nobody, "")
        with pytest.raises(BadRequest, match=r"app, user, session id$"):
            await store.names(nobody)
        with pytest.raises(BadRequest, match="not both"):
            await store.save(KEY, "a", structs.replace(PNG, text="x"))
        with pytest.raises(BadRequest, match="custom metadata"):
            await store.save(KEY, "a", PNG, {"x": object()})

    @pytest.mark.parametrize(
        "name",
        ["a/b", "a\\b", "/etc/passwd", "user:a/b", ".", "..", "user:..", "user:", "a\x00", "a\n", "x" * 256, "\ud800"],
    )
    async def test_core_118_FR_007_names_that_are_refused(self, store: ArtifactStore, name: str) -> None:
        for call in (
            partial(store.save, KEY, name, PNG),
            partial(store.load, KEY, name),
            partial(store.delete, KEY, name),
        ):
            with pytest.raises(BadRequest):
                await call()
        with pytest.raises(BadRequest):
            await store.load(KEY, "a", -1)
        assert await store.names(KEY) == []

    async def test_FR_007_FR_233_odd_names_are_independent(self, store: ArtifactStore) -> None:
        names = [
            "versions",
            "Versions",
            "VERSIONS",
            "metadata.json",
            "about.json",
            "content",
            "deleted",
            "1",
            "project",
        ]
        names += [
            "...",
            ".aside",
            "%56ersions",
            "a:b",
            "user:Versions",
            "user:a",
            "nul",
            "CON",
            " ",
            "~",
            "a~b",
            "*?|<>",
        ]
        names += [
            "你好.txt",
            "😀",
            "é",
            "e\u0301",
            "x" * 255,
            "x" * 254 + "y",
            "你" * 255,
            "你" * 254 + "好",
            "user:" + "z" * 250,
        ]
        for name in names:
            assert await store.save(KEY, name, Part(text=name)) == 1
        assert await store.names(KEY) == sorted(names)
        await store.delete(KEY, "project")
        await store.delete(KEY, "versions")
        for name in set(names) - {"project", "versions"}:
            assert await store.load(KEY, name) == Part(text=name)

    async def test_keys_with_odd_parts_are_independent(self, store: ArtifactStore) -> None:
        keys = [
            SessionKey(*parts)
            for parts in (("a", "b/c", "d"), ("a/b", "c", "d"), ("..", "..", ".."), ("A", "b/c", "d"))
        ]
        for number, key in enumerate(keys):
            await store.save(key, f"n{number}", PNG)
        assert [await store.names(key) for key in keys] == [["n0"], ["n1"], ["n2"], ["n3"]]


class MemoryStoreSuite(Suite):
    """All that the port MemoryStore asks for; statement 119 of spec core 11, and 12.29."""

    async def test_core_119_any_word_matches_whatever_its_case(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "The weather in Tokyo", "Nothing of interest", "tokyo, again!"))
        assert set(await _found(store, "TOKYO rain")) == {"The weather in Tokyo", "tokyo, again!"}
        assert await _found(store, "snow") == []

    async def test_core_119_empty_question_and_no_data(self, store: MemoryStore) -> None:
        assert await store.search("app", "ann", "tokyo") == []
        await store.add_session(_session(KEY, "Tokyo", "", " ", ","))
        for nothing in ("", " ", " ,.!", "\n", "\x00", "👍", "\ud800"):
            assert await store.search("app", "ann", nothing) == []

    async def test_core_119_users_and_apps_are_apart(self, store: MemoryStore) -> None:
        for user in ("ann", "bob"):
            await store.add_session(_session(KEY._replace(user=user), f"Tokyo with {user}"))
        await store.add_session(_session(KEY._replace(app="other"), "Tokyo elsewhere"))
        assert await _found(store, "tokyo") == ["Tokyo with ann"]
        assert [e.content.text for e in await store.search("app", "bob", "tokyo ann")] == ["Tokyo with bob"]
        for app, user in (("app", "nobody"), ("none", "ann"), ("app", "ann' OR '1'='1"), ("app%", "ann")):
            assert await store.search(app, user, "tokyo") == []
        for app, user in (("", "ann"), ("app", "")):
            with pytest.raises(BadRequest):
                await store.search(app, user, "tokyo")
        with pytest.raises(BadRequest):
            await store.add_session(_session(SessionKey("app", "", "s1"), "Tokyo"))

    async def test_adding_a_session_again_replaces_it(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "Tokyo", "Kyoto"))
        await store.add_session(_session(ELSEWHERE, "Tokyo is large"))
        await store.add_session(_session(KEY, "Tokyo", "Osaka"))
        assert len(await _found(store, "tokyo")) == 2
        assert await _found(store, "kyoto") == []
        assert await _found(store, "osaka") == ["Osaka"]
        await store.add_session(_session(KEY, "Nara"))
        assert await _found(store, "tokyo osaka nara") == ["Nara", "Tokyo is large"]
        await store.add_session(_session(KEY))
        assert await _found(store, "tokyo nara") == ["Tokyo is large"]

    async def test_core_12_29_a_session_that_grew_is_added_again_and_again(self, store: MemoryStore) -> None:
        session = _session(KEY)
        for number in range(6):
            session.events.append(note(f"day {number}", at=float(number)))
            await store.add_session(session)
            await store.add_session(session)
        assert await _found(store, "day") == [f"day {number}" for number in range(5, -1, -1)]
        session.events[2:4] = [note("night", at=9.0)]
        await store.add_session(session)
        assert await _found(store, "day night") == ["night", "day 5", "day 4", "day 1", "day 0"]

    async def test_sessions_are_added_at_the_same_time(self, store: MemoryStore) -> None:
        sessions = [_session(KEY._replace(id=f"s{n}"), f"Tokyo {n}", f"Kyoto {n}") for n in range(10)]
        await together(*(partial(store.add_session, session) for session in sessions * 2))
        assert sorted(await _found(store, "tokyo")) == [f"Tokyo {n}" for n in range(10)]

    async def test_core_12_29_the_best_match_comes_first(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "rain", "rain in Tokyo", "no rain in Tokyo today", "sun"))
        found = await _found(store, "rain today tokyo")
        assert found == ["no rain in Tokyo today", "rain in Tokyo", "rain"]

    async def test_core_12_29_equally_good_matches_come_newest_first(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "rain one", "rain two", "rain three"))
        assert await _found(store, "rain") == ["rain three", "rain two", "rain one"]

    @pytest.mark.parametrize(
        ("text", "asked", "found"),
        [
            ("See (Tokyo), she said.", "tokyo?!", True),
            ("it's a well-known place", "well known", True),
            ("Straße", "STRASSE", True),
            ("café", "cafe\u0301", True),
            ("今天天气很好", "天气", True),
            ("今天天气很好", "东京", False),
            ("東京タワー", "京都", False),
            ("서울에서 만나요", "서울", True),
            ("हिन्दी भाषा", "हिन्दी", True),
            ("Tokyo", "tok", False),
            ("v3.5 of it", "3 5", True),
        ],
    )
    async def test_core_12_29_FR_233_words_without_punctuation_in_any_script(
        self, store: MemoryStore, text: str, asked: str, found: bool
    ) -> None:
        await store.add_session(_session(KEY, text, "something else"))
        assert await _found(store, asked) == ([text] if found else [])

    @pytest.mark.parametrize(
        "asked",
        [
            '"',
            'tokyo"',
            "tokyo OR",
            "AND tokyo NOT tokyo",
            "tokyo*",
            "words : tokyo",
            "-tokyo",
            "^tokyo",
            "(tokyo",
            "NEAR(tokyo kyoto, 2)",
            "{owner} : o1 tokyo",
            "tokyo'; DROP TABLE memories; --",
            "tokyo \x00 \ud800",
        ],
    )
    async def test_a_question_is_never_a_query(self, store: MemoryStore, asked: str) -> None:
        await store.add_session(_session(KEY, "Tokyo", "Osaka"))
        await store.add_session(_session(KEY._replace(user="bob"), "Tokyo"))
        assert await _found(store, asked) == (["Tokyo"] if "tokyo" in asked else [])

    async def test_operators_are_words_like_others(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "this and that", "o1 near", "not"))
        assert await _found(store, "AND") == ["this and that"]
        assert await _found(store, "NEAR") == ["o1 near"]
        assert await _found(store, "o1") == ["o1 near"]
        assert await _found(store, "NOT") == ["not"]

    async def test_a_question_may_be_long(self, store: MemoryStore) -> None:
        await store.add_session(_session(KEY, "Tokyo"))
        assert await _found(store, "tokyo " + " ".join(f"word{n}" for n in range(20_000))) == ["Tokyo"]
        assert await _found(store, "天" * 100_000 + " tokyo") == ["Tokyo"]

    async def test_an_entry_tells_where_it_is_from(self, store: MemoryStore) -> None:
        at = datetime(2026, 2, 25, 6, 13, 20, tzinfo=UTC)
        event = Event(id="e", timestamp=at, author="user", content=user_text("Tokyo"), custom_metadata={"k": 1})
        await store.add_session(Session(key=KEY, events=[event, Event(id="x", author="agent")]))
        (entry,) = await store.search("app", "ann", "tokyo")
        assert (entry.id, entry.author, entry.content) == ("e", "user", user_text("Tokyo"))
        assert datetime.fromisoformat(entry.timestamp) == at
        assert entry.custom_metadata == {"k": 1}

    async def test_only_what_was_said_is_kept(self, store: MemoryStore) -> None:
        parts = [
            Part(text="secret plan for Tokyo", thought=True),
            Part(text="Tokyo ", thought_signature=b"\x00"),
            PNG,
            Part(text="it is"),
            Part(function_call=FunctionCall(id="c", name="book", args={"city": "Tokyo"})),
        ]
        said = Event(id="e", author="agent", content=Content(role="model", parts=parts))
        thought = Event(id="t", author="agent", content=Content(role="model", parts=parts[:1]))
        piece = Event(id="p", author="agent", partial=True, content=user_text("Tokyo"))
        await store.add_session(Session(key=KEY, events=[said, thought, piece]))
        (entry,) = await store.search("app", "ann", "tokyo")
        assert entry.content == Content(role="model", parts=[Part(text="Tokyo "), Part(text="it is")])
        assert await _found(store, "secret book") == []


async def _found(store: MemoryStore, query: str) -> list[str]:
    return [entry.content.text for entry in await store.search("app", "ann", query)]


def _session(key: SessionKey, *texts: str) -> Session:
    return Session(key=key, events=[note(text, at=float(number)) for number, text in enumerate(texts)])
