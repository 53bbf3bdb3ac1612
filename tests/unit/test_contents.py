"""From history to prompt: spec core 3.6 (statements 60 to 68), 12.22, and the field reports about histories."""

from datetime import UTC, datetime
from typing import Any

from polyport import codec
from polyport.data.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    model_text,
    user_text,
)
from polyport.data.event import Compaction, Event, EventActions
from polyport.data.model import Transcription
from polyport.engine.contents import ALONE, GO_ON, LEAD, Prompt, build_contents
from polyport.engine.pairing import NO_RESULT


def user(text: str, **fields: Any) -> Event:
    return Event(author="user", content=user_text(text), **fields)


def says(text: str, author: str = "a", **fields: Any) -> Event:
    return Event(author=author, content=model_text(text), **fields)


def call(*ids: str, author: str = "a", name: str = "", text: str = "", **fields: Any) -> Event:
    parts = [Part(function_call=FunctionCall(id=i, name=name or f"tool_{i}", args={"n": i})) for i in ids]
    return Event(
        author=author, content=Content(role="model", parts=[Part(text=text), *parts] if text else parts), **fields
    )


def result(*ids: str, author: str = "a", value: Any = "ok", name: str = "", **fields: Any) -> Event:
    parts = [
        Part(function_response=FunctionResponse(id=i, name=name or f"tool_{i}", response={"result": value}))
        for i in ids
    ]
    return Event(author=author, content=Content(role="user", parts=parts), **fields)


def plain(contents: list[Content]) -> list[Any]:
    """Contents as short words: `u:text`, `m:text`, `call id`, `id=value`; several parts as a list."""
    out: list[Any] = []
    for content in contents:
        words: list[str] = []
        for part in content.parts:
            if part.function_call is not None:
                assert content.role == "model"
                words.append(f"call {part.function_call.id}")
            elif part.function_response is not None:
                assert content.role == "user"
                response = part.function_response.response or {}
                value = "none yet" if response == NO_RESULT else response.get("result")
                words.append(f"{part.function_response.id}={value}")
            else:
                words.append(f"{content.role[0]}:{part.text}")
        out.append(words[0] if len(words) == 1 else words)
    return out


def build(*events: Event, agent: str = "a", **options: Any) -> list[Any]:
    return plain(build_contents(events, agent=agent, **options))


def late(*names: str) -> str:
    tools = ", ".join(f"`{name}`" for name in names)
    return f"u:A result of {tools} has come in since; it is shown right behind the call."


# -- the plain rules


def test_a_conversation_passes_through_as_the_same_objects():
    events = [user("hi"), says("hello"), user("bye")]
    contents = build_contents(events, agent="a")
    assert [c is e.content for c, e in zip(contents, events, strict=True)] == [True] * 3


def test_core_3_6_1_what_says_nothing_is_left_out():
    signature = Part(text="", thought_signature=b"s")
    events = [
        user("hi"),
        Event(author="a"),
        Event(author="a", content=Content(role="model")),
        Event(author="a", content=Content(role="model", parts=[Part(), Part(text=""), Part(thought=True)])),
        Event(author="a", error_code="SAFETY", error_message="no"),
        Event(author="a", content=Content(role="model", parts=[Part(), Part(text="yes"), signature])),
        Event(author="a", content=Content(role="model", parts=[Part(part_metadata={"k": 1})])),
        says("half", partial=True),
        user("go"),
    ]
    contents = build_contents(events, agent="a")
    assert [c.parts for c in contents] == [[Part(text="hi")], [Part(text="yes"), signature], [Part(text="go")]]


def test_core_3_6_12_the_last_content_is_by_the_user_and_nothing_stays_nothing():
    assert build_contents([user("hi"), says("hello")], agent="a")[-1] is GO_ON
    assert build_contents([], agent="a") == []
    assert build_contents([Event(author="a")], agent="a") == []


def test_a_missing_role_is_found_from_who_spoke():
    no_role = [Part(text="x")]
    events = [
        Event(author="user", content=Content(parts=no_role)),
        Event(author="a", content=Content(parts=no_role)),
        Event(author="a", content=Content(parts=call("1").content.parts)),
        Event(author="a", content=Content(parts=result("1").content.parts)),
    ]
    assert build(*events) == ["u:x", "m:x", "call 1", "1=ok"]


def test_core_63_branches_are_compared_by_segments():
    events = [
        user("top"),
        says("up", branch="p"),
        says("same", branch="p.a"),
        says("below", branch="p.a.b"),
        says("sibling", branch="p.ab"),
        says("other", branch="q"),
        user("end"),
    ]
    assert build(*events, branch="p.a") == ["u:top", "m:up", "m:same", "u:end"]
    assert len(build(*events)) == 7


def test_core_63_scopes_match_exactly_both_ways():
    events = [user("open"), user("in", isolation_scope="s"), user("other", isolation_scope="s2")]
    assert build(*events) == ["u:open"]
    assert build(*events, scope="s") == ["u:in"]


def test_core_62_reserved_calls_and_answers_never_reach_the_prompt():
    for name in ("adk_request_confirmation", "adk_request_credential", "adk_request_input"):
        assert build(
            user("hi"),
            call("1"),
            result("1", value="ask first"),
            call("w", name=name, long_running_tool_ids=["w"]),
            Event(
                author="user",
                content=Content(
                    role="user", parts=[*result("w", name=name).content.parts, Part(text="but be careful")]
                ),
            ),
            result("w", author="user", name="misspelt"),
            result("1", author="user", name=name, value="not the tool's result"),
            says("x"),
            user("end"),
        ) == ["u:hi", "call 1", "1=ask first", "u:but be careful", "m:x", "u:end"]


def test_core_61_another_agents_events_become_context_by_the_user():
    contents = build_contents(
        [
            user("hi"),
            says("hello", author="b"),
            call("1", author="b"),
            result("1", author="b"),
            Event(
                author="b",
                content=Content(
                    role="user", parts=[Part(function_response=FunctionResponse(id="2", name="f", response=None))]
                ),
            ),
        ],
        agent="a",
    )
    assert [c.role for c in contents] == ["user"] * 5
    assert [c.parts[0] for c in contents[1:]] == [LEAD] * 4
    assert [c.parts[1].text for c in contents[1:]] == [
        "[b] said: hello",
        '[b] called the tool `tool_1` with {"n":"1"}',
        '[b] got from the tool `tool_1`: {"result":"ok"}',
        "[b] got from the tool `f`: null",
    ]


def test_FR_180_thoughts_signatures_and_metadata_of_others_stay_theirs():
    image = Part(inline_data=Blob(mime_type="image/png", data=b"x"), part_metadata={"k": 1}, thought_signature=b"s")
    contents = build_contents(
        [
            user("hi"),
            Event(
                author="b",
                content=Content(
                    role="model",
                    parts=[
                        Part(text="secret plan", thought=True),
                        Part(text="answer", thought_signature=b"s"),
                        image,
                        Part(file_data=FileData(file_uri="u")),
                        Part(executable_code=ExecutableCode(code="1+1")),
                        Part(code_execution_result=CodeExecutionResult(output="2")),
                        Part(tool_call={"q": 1}),
                        Part(tool_response={"r": 2}),
                        Part(thought_signature=b"s"),
                    ],
                ),
            ),
            Event(author="b", content=Content(role="model", parts=[Part(text="only a thought", thought=True)])),
        ],
        agent="a",
    )
    assert len(contents) == 2
    assert contents[1].parts == [
        LEAD,
        Part(text="[b] said: answer"),
        Part(inline_data=image.inline_data),
        Part(file_data=FileData(file_uri="u")),
        Part(text="[b] wrote code: 1+1"),
        Part(text="[b] ran code, which gave: 2"),
        Part(text='[b] used a tool of its model: {"q":1}'),
        Part(text='[b] got from a tool of its model: {"r":2}'),
    ]


def test_own_thoughts_are_kept():
    thought = Content(role="model", parts=[Part(text="hm", thought=True, thought_signature=b"s"), Part(text="yes")])
    assert build_contents([user("hi"), Event(author="a", content=thought), user("x")], agent="a")[1] is thought


def test_FR_070_the_whole_answer_once_with_its_parts_in_order():
    pieces = [says(t, partial=True) for t in ("Hi Ada ", "how are you ", "doing?")]
    mixed = Content(
        role="model",
        parts=[Part(text="t", thought=True), Part(text="a"), Part(executable_code=ExecutableCode(code="1"))],
    )
    events = [
        user("1"),
        *pieces,
        says("Hi Ada how are you doing?"),
        user("2"),
        Event(author="a", content=mixed),
        user("3"),
    ]
    contents = build_contents(events, agent="a")
    assert plain(contents)[:3] == ["u:1", "m:Hi Ada how are you doing?", "u:2"]
    assert contents[3] is mixed


def heard(text: str, finished: bool = False, **fields: Any) -> Event:
    return Event(author="user", input_transcription=Transcription(text=text, finished=finished), **fields)


def spoken(text: str, author: str = "a", **fields: Any) -> Event:
    return Event(author=author, output_transcription=Transcription(text=text), **fields)


def test_core_64_transcriptions_in_a_row_become_one_text_for_each_direction():
    assert build(
        heard("my co"),
        heard("de is 42", finished=True),
        heard(""),
        heard("please"),
        Event(author="a"),
        spoken("o"),
        heard("not here", branch="x"),
        spoken("k"),
        spoken("b says", author="b"),
        heard("more"),
        user("typed"),
        heard("end"),
        branch="y",
    ) == [
        "u:my code is 42 please",
        "m:ok",
        [f"u:{LEAD.text}", "u:[b] said: b says"],
        "u:more",
        "u:typed",
        "u:end",
    ]


# -- calls and responses


def test_a_call_and_its_response_in_separate_events():
    assert build(user("hi"), call("1", "2", text="wait"), result("2"), result("1"), says("x"), user("y")) == [
        "u:hi",
        ["m:wait", "call 1", "call 2"],
        ["1=ok", "2=ok"],
        "m:x",
        "u:y",
    ]


def test_FR_033_an_unanswered_call_gets_a_neutral_response_and_history_is_not_touched():
    events = [user("go"), call("c1", "c2"), result("c2"), user("stop, do something else")]
    before = codec.encode(events)
    assert build(*events) == ["u:go", ["call c1", "call c2"], ["c1=none yet", "c2=ok"], "u:stop, do something else"]
    assert build(user("go"), call("c1")) == ["u:go", "call c1", "c1=none yet"]
    assert codec.encode(events) == before


def test_core_65_the_latest_response_counts_and_a_late_one_is_announced():
    history = [user("run"), call("j"), result("j", value="pending"), says("it runs"), user("ok"), says("fine")]
    final = [*history, result("j", author="user", value="done")]
    assert build(*final) == ["u:run", "call j", "j=done", "m:it runs", "u:ok", "m:fine", late("tool_j")]
    assert build(*final, says("all done"), user("thanks")) == [*build(*final), "m:all done", "u:thanks"]
    assert build(*history[:3], result("j", author="user", value="50%"), result("j", author="user", value="done")) == [
        "u:run",
        "call j",
        "j=done",
    ]


def test_core_66_mixed_parallel_calls_stay_one_response_content_in_call_order():
    assert build(
        user("hi"),
        call("long", "short"),
        result("short"),
        result("long", value="pending"),
        result("long", author="user", value="done"),
    ) == ["u:hi", ["call long", "call short"], ["long=done", "short=ok"]]


def test_core_67_a_response_without_any_call_is_told_as_text():
    [content] = build_contents([result("x", author="user", value=7)], agent="a")
    assert content == user_text(
        'The tool `tool_x`, whose call is not part of this conversation, returned: {"result":7}'
    )
    empty = Event(
        author="user",
        content=Content(role="user", parts=[Part(function_response=FunctionResponse(id="x", name="f", response={}))]),
    )
    assert build(user("hi"), empty, says("x"), user("y")) == ["u:hi", "m:x", "u:y"]


def test_a_response_is_never_paired_with_a_later_call():
    assert build(result("1", author="user", value=1), user("hi"), call("1"))[1:] == ["u:hi", "call 1", "1=none yet"]


def test_a_call_that_comes_later_or_elsewhere_does_not_hide_a_stray_response():
    stray = result("1", author="user", value=1)
    told = 'u:The tool `tool_1`, whose call is not part of this conversation, returned: {"result":1}'
    assert build(stray, call("1", branch="q"), branch="p") == [told]
    assert build(call("1", branch="q"), stray, branch="p") == []


def test_pairing_by_name_is_for_responses_without_ids_only():
    asked = user("x"), call("1", name="f")
    assert build(*asked, result("", name="f"))[1:] == ["call 1", "1=ok"]
    assert build(*asked, result("2", name="f"))[1:3] == ["call 1", "1=none yet"]
    assert build(*asked, result("", name="f", author="b"))[1:3] == ["call 1", "1=none yet"]
    assert build(user("x"), call("", name="f"), result("7", name="f"))[1:] == ["call adk-call-1", "adk-call-1=ok"]


def test_what_is_told_of_a_response_is_told_by_the_user_whatever_its_role():
    odd = Event(author="a", content=Content(role="model", parts=result("9").content.parts))
    [content] = build_contents([odd], agent="a")
    assert content.role == "user"


def test_text_beside_a_response_follows_the_responses():
    parts = [Part(text="see"), *result("1").content.parts, Part(text="above")]
    assert build(user("hi"), call("1", "2"), Event(author="user", content=Content(role="user", parts=parts))) == [
        "u:hi",
        ["call 1", "call 2"],
        ["1=ok", "2=none yet"],
        ["u:see", "u:above"],
    ]


def test_FR_117_two_late_answers_in_one_message():
    assert build(
        user("a"), call("1"), says("wait"), user("b"), call("2"), says("wait too"), result("1", "2", author="user")
    ) == [
        "u:a",
        "call 1",
        "1=ok",
        "m:wait",
        "u:b",
        "call 2",
        "2=ok",
        "m:wait too",
        late("tool_1", "tool_2"),
    ]


def test_FR_118_a_result_after_unrelated_turns_finds_its_call():
    events = [user("go"), call("1"), result("1", value="pending"), says("started")]
    events += [user("x"), says("y"), user("x2"), says("y2"), result("1", author="user", value="done")]
    contents = build(*events)
    assert contents[:4] == ["u:go", "call 1", "1=done", "m:started"]
    assert contents[-1] == late("tool_1")
    assert build(user("go"), result("unknown", author="user"), says("x"))[1].startswith("u:The tool `tool_unknown`")


def test_FR_062_065_workers_side_by_side_see_their_own_pairs_only():
    workers = [f"p.w{i}" for i in range(8)]
    events = [user("go")]
    events += [call(f"c{w}", author=w[2:], branch=w) for w in workers]
    events += [user("a stray input without branch")]
    events += [result(f"c{w}", author=w[2:], branch=w) for w in reversed(workers)]
    events += [result("cp.w3", author="user", value="late")]
    for w in workers:
        value = "late" if w == "p.w3" else "ok"
        pair = [f"call c{w}", f"c{w}={value}"]
        notes = [late(f"tool_c{w}")] * (2 if w == "p.w3" else 1)
        assert build(*events, agent=w[2:], branch=w) == ["u:go", *pair, "u:a stray input without branch", *notes]


def test_an_answer_to_another_agents_call_is_told_as_that_agents():
    assert build(user("hi"), call("1", author="b"), result("1", author="user"))[2] == (
        'u:[b] got from the tool `tool_1`: {"result":"ok"}'
    )


def test_a_response_by_somebody_else_still_belongs_to_the_caller():
    assert build(user("hi"), call("1"), result("1", author="helper")) == ["u:hi", "call 1", "1=ok"]


def test_ids_are_made_unique_and_missing_ones_are_made_up():
    assert build(user("a"), call("0"), result("0", value=1), user("b"), call("0"), result("0", value=2)) == [
        "u:a",
        "call 0",
        "0=1",
        "u:b",
        "call 0-2",
        "0-2=2",
    ]
    same = call("0", "0")
    assert build(user("a"), same, result("0", "0"))[1:] == [["call 0", "call 0-2"], ["0=ok", "0-2=ok"]]
    no_id = call("", "", name="f"), result("", value=1, name="f"), result("", value=2, name="f")
    assert build(user("a"), *no_id)[1:] == [["call adk-call-1", "call adk-call-2"], ["adk-call-1=1", "adk-call-2=2"]]


def test_generated_ids_are_kept():
    assert build(user("a"), call("adk-1"), result("adk-1")) == ["u:a", "call adk-1", "adk-1=ok"]


def test_a_response_takes_the_name_of_its_call():
    contents = build_contents([user("a"), call("1"), result("1", name="wrong")], agent="a")
    assert contents[2].responses[0].name == "tool_1"


def test_calls_that_no_model_made_are_told_as_text():
    contents = build_contents(
        [Event(author="user", content=Content(role="user", parts=call("1").content.parts))], agent="a"
    )
    assert contents == [user_text('[user] called the tool `tool_1` with {"n":"1"}')]
    nameless = Content(role="model", parts=[Part(function_call=FunctionCall(id="1"))])
    assert build(user("x"), Event(author="a", content=nameless)) == ["u:x"]


def test_arguments_without_json_form_do_not_break_the_prompt():
    odd = Content(role="model", parts=[Part(function_call=FunctionCall(name="f", args={"x": object()}))])
    assert build_contents([Event(author="b", content=odd)], agent="a")[0].parts[1].text == (
        "[b] called the tool `f` with (a dict)"
    )


# -- include="none"


def test_core_60_none_starts_at_the_newest_input_that_is_visible():
    events = [user("old"), says("x"), says("from b", author="b"), call("1"), result("1")]
    assert build(*events, include="none") == [[f"u:{LEAD.text}", "u:[b] said: from b"], "call 1", "1=ok"]
    hidden = [user("new", branch="q"), user("scoped", isolation_scope="s"), says("b", author="b", branch="q")]
    assert build(*events, *hidden, branch="p", include="none")[0][1] == "u:[b] said: from b"
    assert build(*events, user("newest"), include="none") == ["u:newest"]
    assert build(says("x"), include="none") == ["m:x", f"u:{GO_ON.text}"]


def test_FR_108_none_keeps_the_calls_that_responses_need():
    for child in ("x", "y"):
        events = [user("before"), says("old", author=child), user("go")]
        for name in ("y", "x"):
            events.append(call(f"{name}1", f"{name}2", author=name, branch=f"p.{name}"))
            events.append(result(f"{name}1", f"{name}2", author=name, branch=f"p.{name}"))
        assert build(*events, agent=child, branch=f"p.{child}", include="none") == [
            "u:go",
            [f"call {child}1", f"call {child}2"],
            [f"{child}1=ok", f"{child}2=ok"],
        ]


def test_none_does_not_start_at_an_answer_nor_at_a_bare_transfer():
    assert build(user("old"), user("go"), call("1"), result("1", author="user"), include="none")[0] == "u:go"
    gate = result("w", author="user", name="adk_request_confirmation")
    assert build(user("go"), call("1"), result("1"), gate, include="none")[0] == "u:go"
    transfer = call("t", author="b", name="transfer_to_agent"), result("t", author="b", name="transfer_to_agent")
    assert build(user("old"), user("go"), *transfer, include="none")[0] == "u:go"
    assert build(user("old"), heard("a"), heard("b"), spoken("c"), include="none")[:2] == ["u:ab", "m:c"]
    assert build(user("go"), call("1"), user("next"), result("1", author="user"), include="none") == [
        "u:next",
        'u:The tool `tool_1`, called before with {"n":"1"}, returned: {"result":"ok"}',
    ]


# -- scoped agents


def test_core_68_a_scoped_prompt_starts_with_the_arguments_of_the_delegating_call():
    events = [
        user("hi"),
        call("s", author="boss"),
        says("working", isolation_scope="s"),
        user("ok", isolation_scope="s"),
    ]
    seed = user_text("the input")
    assert build(*events, scope="s", user_content=seed) == ['u:{"n":"s"}', "m:working", "u:ok"]
    assert build(*events[2:], scope="s", user_content=seed) == ["u:the input", "m:working", "u:ok"]
    assert build(*events[2:], scope="s") == ["m:working", "u:ok"]
    assert build(*events[:1], user_content=seed) == ["u:hi"]
    assert build(*events, scope="s", single_turn=True)[0] == ['u:{"n":"s"}', f"u:{ALONE.text}"]


# -- window


def test_a_window_starts_at_a_user_turn_and_cuts_no_pair():
    turns = [[user(f"q{i}"), call(f"{i}"), result(f"{i}"), says(f"r{i}")] for i in range(5)]
    events = [e for turn in turns for e in turn] + [user("now")]
    assert build(*events, window=1) == ["u:now"]
    assert build(*events, window=4) == ["u:now"]
    assert build(*events, window=7) == ["u:q4", "call 4", "4=ok", "m:r4", "u:now"]
    assert build(*events, window=100) == build(*events)
    assert build(*events, call("x"), result("x"), call("y"), result("y"), window=2)[0] == "u:now"
    assert build(*events, window=0) == ["u:now"]
    assert build(says("x"), says("y"), window=1) == ["m:y", f"u:{GO_ON.text}"]
    assert build(heard("a"), heard("b"), heard("c"), window=2) == ["u:abc"]


def test_a_window_within_a_long_turn_keeps_what_the_user_said_and_the_newest_steps():
    steps = [event for n in range(50) for event in (call(str(n)), result(str(n)))]
    events = [user("old"), says("done"), user("go"), *steps]
    newest = ["call 48", "48=ok", "call 49", "49=ok"]
    assert build(*events, window=4) == ["u:go", *newest]
    assert build(*events, window=3) == ["u:go", *newest], "a response does not stand without its call"
    assert build(*events, window=200) == build(*events)
    assert build(*steps, window=2) == newest[2:], "nobody said anything"


def test_a_window_does_not_start_at_an_answer_to_a_call():
    events = [user("go"), call("1"), result("1", author="user"), says("x")]
    assert build(*events, window=2)[0] == "u:go"
    gate = result("w", author="user", name="adk_request_confirmation")
    assert build(user("go"), call("1"), result("1"), gate, result("1"), window=2)[0] == "u:go"


def test_a_window_tells_of_a_late_response_whose_call_is_older():
    events = [user("go"), call("1"), says("wait"), user("x"), says("y"), result("1", author="user")]
    assert build(*events, window=3) == [
        "u:x",
        "m:y",
        'u:The tool `tool_1`, called before with {"n":"1"}, returned: {"result":"ok"}',
    ]


def test_a_window_counts_what_the_agent_sees():
    noise = [says("n", branch="q"), says("half", partial=True), Event(author="a")]
    events = [user("1", branch="p"), *noise, says("2"), *noise, user("3"), *noise, says("4"), *noise]
    assert build(*events, window=3, branch="p") == ["u:3", "m:4", f"u:{GO_ON.text}"]
    assert build(*events, window=4, branch="p")[0] == "u:1"


# -- compaction


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def compaction(start: int, end: int, text: str, **fields: Any) -> Event:
    summary = Compaction(start_timestamp=start, end_timestamp=end, compacted_content=model_text(text))
    return Event(author="user", timestamp=at(end + 1), actions=EventActions(compaction=summary), **fields)


def numbered(first: int, last: int) -> list[Event]:
    return [user(str(n), timestamp=at(n)) if n % 2 else says(str(n), timestamp=at(n)) for n in range(first, last)]


def test_core_3_12_a_summary_stands_for_the_events_it_covers():
    events = [*numbered(1, 7), compaction(1, 4, "sum"), *numbered(7, 8)]
    assert build(*events) == ["u:sum", "u:5", "m:6", "u:7"]
    assert build(*events[4:]) == ["u:sum", "u:5", "m:6", "u:7"]
    assert build(*events, window=3) == ["u:sum", "u:7"]


def test_core_3_12_a_wider_or_newer_range_supersedes():
    events = [*numbered(1, 5), compaction(1, 2, "one"), compaction(1, 4, "two"), compaction(1, 4, "three")]
    assert build(*events, *numbered(5, 6)) == ["u:three", "u:5"]
    assert build(*numbered(1, 7), compaction(1, 3, "x"), compaction(3, 5, "y"), *numbered(7, 8)) == [
        "u:x",
        "u:y",
        "m:6",
        "u:7",
    ]


def test_core_3_12_a_summary_covers_only_what_was_stored_before_it():
    assert build(*numbered(1, 4), compaction(1, 6, "sum"), user("clock went back", timestamp=at(3))) == [
        "u:sum",
        "u:clock went back",
    ]
    assert build(user("no time"), compaction(5, 6, "sum"), user("none")) == ["u:no time", "u:sum", "u:none"]


def test_core_3_12_covered_events_do_not_count_for_a_window():
    events = [user("kept", timestamp=at(0)), *numbered(1, 7), compaction(1, 6, "sum"), *numbered(7, 8)]
    assert build(*events, window=3) == ["u:kept", "u:sum", "u:7"]


def test_core_3_12_calls_in_a_summary_are_left_out():
    summary = Content(role="model", parts=[Part(text="sum"), *call("1").content.parts, *result("2").content.parts])
    actions = EventActions(compaction=Compaction(start_timestamp=0, end_timestamp=1, compacted_content=summary))
    assert build(Event(author="user", actions=actions)) == ["u:sum"]


def test_core_3_12_a_summary_that_the_agent_may_not_see_changes_nothing():
    events = [*numbered(1, 4), compaction(1, 2, "sum", isolation_scope="s"), *numbered(5, 6)]
    assert build(*events) == ["u:1", "m:2", "u:3", "u:5"]


def test_core_3_12_a_response_whose_call_was_summarised_is_told():
    events = [user("1", timestamp=at(1)), call("c", timestamp=at(2)), compaction(1, 2, "sum")]
    assert build(*events, result("c", author="user", timestamp=at(5))) == [
        "u:sum",
        'u:The tool `tool_c`, called before with {"n":"c"}, returned: {"result":"ok"}',
    ]


# -- the incremental form


def test_a_prompt_grows_with_the_run_and_earlier_answers_stay_as_they_were():
    prompt = Prompt(agent="a")
    session = [user("hi"), call("1")]
    prompt.extend(session)
    first = prompt.contents()
    session += [result("1"), says("done")]
    prompt.extend(session[prompt.seen :])
    assert plain(first) == ["u:hi", "call 1", "1=none yet"]
    assert plain(prompt.contents()) == ["u:hi", "call 1", "1=ok", "m:done", f"u:{GO_ON.text}"]
    prompt.extend([user("next")])
    assert plain(prompt.contents()) == ["u:hi", "call 1", "1=ok", "m:done", "u:next"]
