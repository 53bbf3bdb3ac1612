"""What the specification and the field reports ask for, and where we stand, as data.

An id is `core-N` (spec core.md section 11), `rest-N` (rest.md section 8), `TNNN` (a2a.md section 6) or `FR-NNN`
(field-reports.md). A test says which it covers by its name: `test_core_12_...`, `test_rest_32_33_...`, `test_T012_...`,
`test_FR_001_...`; several may follow each other. `OPEN` holds the
ids that no test covers yet, with the reason; `tests/shape/test_requirements.py` keeps both true. `DIVERGENCES` says where we do
something else than the reference on purpose.
"""

import re
from collections.abc import Iterator
from pathlib import Path

CORE = [f"core-{n}" for n in range(1, 124)]
REST = [f"rest-{n}" for n in range(1, 129)]
FIELD = [
    f"FR-{n:03}"
    for n in (
        *(
            1,
            3,
            4,
            7,
            9,
            10,
            11,
            13,
            14,
            15,
            16,
            18,
            20,
            22,
            23,
            25,
            28,
            29,
            31,
            33,
            35,
            36,
            37,
            38,
            41,
            45,
            46,
            47,
            49,
        ),
        *(
            52,
            53,
            54,
            55,
            56,
            57,
            59,
            61,
            62,
            65,
            66,
            68,
            69,
            70,
            71,
            75,
            76,
            77,
            79,
            80,
            82,
            83,
            86,
            87,
            88,
            90,
            91,
            93,
        ),
        *(
            95,
            97,
            100,
            101,
            103,
            104,
            105,
            107,
            108,
            109,
            111,
            113,
            114,
            117,
            118,
            121,
            122,
            123,
            124,
            125,
            129,
            130,
            132,
        ),
        *(134, 135, 138, 139, 140, 141, 143, 145, 148, 149, 152, 153, 154, 155, 156, 158, 159, 162, 163, 164, 166, 167),
        *(169, 173, 175, 177, 178, 180, 181, 182, 184, 185, 187, 189, 190, 194, 195, 197, 199, 200, 201, 202, 203, 207),
        *(208, 209, 211, 213, 215, 217, 218, 220, 221, 223, 225, 226, 227, 228, 230, 233, 235, 236),
    )
]
A2A = [f"T{n:03}" for n in range(1, 112)]
KNOWN = [*CORE, *REST, *A2A, *FIELD]

_NAME = re.compile(r"def (test_\w+)")
_IDS = re.compile(r"(core|rest|FR)((?:_\d+)+)|_(T\d{3})(?=_)")


def covered(root: Path) -> Iterator[tuple[str, str]]:
    """(id, test name) for every id that a test's name gives; the shipped contract suites hold tests as well."""
    for path in sorted([*(root / "tests").rglob("*.py"), *(root / "src/polyport/testing").rglob("*.py")]):
        if path.name == "requirements.py":
            continue
        for name in _NAME.findall(path.read_text(encoding="utf-8")):
            for source, numbers, statement in _IDS.findall(name):
                if statement:
                    yield statement, name
                for number in filter(None, numbers.split("_")):
                    yield (f"FR-{int(number):03}" if source == "FR" else f"{source}-{int(number)}"), name


def _range(source: str, *numbers: int | tuple[int, int]) -> list[str]:
    flat = [n for item in numbers for n in (range(item[0], item[1] + 1) if isinstance(item, tuple) else (item,))]
    return [f"FR-{n:03}" if source == "FR" else f"T{n:03}" if source == "T" else f"{source}-{n}" for n in flat]


OPEN: dict[str, list[str]] = {}
"""Why an id has no test yet -> the ids."""

DIVERGENCES: dict[str, tuple[str, str, str]] = {
    "core-38": ("output_key with a schema stores JSON text", "stores the parsed value", "core section 12.23"),
    "core-40": (
        "a result of a call that is not long-running is a message like others",
        "409: its result comes from the server",
        "who hangs up on a tool must not answer for it; FR-129",
    ),
    "core-62": ("whole events are dropped", "only the reserved parts", "text beside them survives"),
    "core-65": ("text between a call and its late result vanishes", "kept, with a note where the result came", "12.22"),
    "core-67": ("a result without a call is an error", "told as text, or dropped if it says nothing", "12.22: repair"),
    "core section 2.2.6": ("before_run repeats the user's message", "its content once, by the agent", "12.3"),
    "core section 2.4": (
        "errors that may be resumed are found by text, without bound; no budget; function responses of the client are not "
        "stored; streaming tools bypass callbacks; a transcription is stored without content",
        "by code, five attempts with pauses; a budget since the user spoke last; stored, and refused for calls that nobody "
        "waits for; one pipeline for all tools; stored as content and transcription",
        "12.34, 12.26, FR-028, FR-031",
    ),
    "rest section 2.4": (
        "no close frame at a normal end; a client that goes is not told from one that closes",
        "1000; 1001 when the server leaves, 1008 for a slow client, 1013 when the model takes nothing",
        "TARGET, and back-pressure needs an end",
    ),
    "core section 3.2": ("errors are yielded and the run goes on", "the first error ends the run", "12.4"),
    "core section 3.3": ("no budget of model calls", "max_llm_calls, and 3 thought-only answers in a row", "12.1"),
    "core section 3.7": ("a bad transfer target ends the run", "a tool error that lists the names", "12.20, FR-107"),
    "core section 3.9": ("state is live at once", "an overlay until the event is stored", "12.7"),
    "core section 3.11": (
        "the model is asked while approvals of its step are open; a bad answer is a run error; the seal is none",
        "asked when all are settled; refused with 4xx before the run; what is approved is sealed",
        "FR-132, FR-129, 12.14",
    ),
    "core section 2.3": ("text beside an answer is a fresh run", "an approval goes on where it was", "FR-123"),
    "core section 3.14": ("output_key on every event", "once, on the final answer", "12.23"),
    "core section 4.1": ("a nested escalation ends outer loops", "the innermost loop only", "FR-114"),
    "core section 4.2": (
        "a chat agent that does not follow START is a build error",
        "it works on its input, in an isolation scope of its own, as a single_turn one does",
        "chat is our default mode, and nothing is ambiguous",
    ),
    "core section 4.3": (
        "tool nodes go past plugins and approvals; {result: x} is the output; events inside a worker are suppressed",
        "a tool call like every other; x is the output; all events are shown, with paths of their own",
        "12.18, 12.26",
    ),
    "core section 4.4": (
        "only `routes` route; what a workflow came to is an `output` only",
        "a plain text, number or bool routes as well; what a whole workflow came to is also said as text",
        "a model or a human can choose the way; clients of every protocol see the result",
    ),
    "core section 4.6": (
        "the answer is the output of agent and tool nodes, too; it never takes a routed edge",
        "these go on where they were; an answer may choose the route",
        "12.15, 12.16",
    ),
    "core section 4.7": (
        "the state of a graph is guessed from paths, authors and outputs",
        "read from a sealed journal in the events; a nested workflow goes on inside",
        "12.15, 12.17",
    ),
    "core section 4.8": (
        "children run any node, and LLM children run again after a pause",
        "agents and tools are named in uses=; no child that is done runs again",
        "12.15; an approval must find its agent",
    ),
    "core section 3.15": (
        "a root with a task child always answers",
        "only while a task is open",
        "the last speaker is not lost",
    ),
    "core section 6.3": ("state, artifacts, plugins stop at AgentTool", "one run, one session", "12.21"),
    "core section 6.4": ("images of MCP results are ignored", "artifacts, shown in the next request", "12.27, FR-213"),
    "core section 6.5": (
        "a failing memory or artifact load fails the request",
        "told to the model or logged",
        "12.29, FR-100",
    ),
    "core section 9": (
        "unknown keys are ignored, models are gemini- only, paths stay below the referring file, code refs unsupported",
        "unknown keys are errors, models of all providers, paths stay in the project's folder, code refs in all places",
        "12.30, FR-217, FR-218",
    ),
    "core section 3.12": (
        "compaction inside the stream",
        "after it has ended, while the run holds the session",
        "nobody waits",
    ),
    "FR-118": ("an unknown id is an error", "a normal run", "core-35 is pinned by the reference's tests"),
    "rest-9": ("<, > and & are escaped in JSON", "raw UTF-8", "any equal JSON is accepted; nosniff is set"),
    "rest-17": ("500 `session s1 already exists`", "409 `Session already exists: s1`", "FR-003"),
    "rest-19": ("imported app: keys are applied", "refused", "they belong to other users, too"),
    "rest-41": ("500 for an app that is gone", "404", "rest section 10, merged profile"),
    "rest-53": ("the stream goes on after an error frame", "the first error is the last frame", "core section 12.4"),
    "rest section 1.4": (
        "whoever makes a session, or runs an agent, may set app: state",
        "who may administer the app, where callers have to say who they are",
        "rest section 11.10",
    ),
    "rest-82": (
        "an authenticator alone lets everybody act as anybody",
        "Strict comes with it; App(auth=Auth(authenticator, Open())) or --authorize open says otherwise",
        "secure by default, DESIGN section 5",
    ),
    "rest section 3.1": (
        "a body is decoded before authorization",
        "after it where the path names the user; before it where the body does",
        "the body of a stranger is not read",
    ),
    "rest section 3.2": ("a header with a user is believed", "from named proxies only", "rest section 11.2"),
    "rest-98": ("artifact names may hold a slash in Python", "400", "FR-007"),
    "rest-108": ("500 for a session that is missing", "404", "rest section 6.2, TARGET"),
    "rest-109": ("500 text/plain for an unknown method", "400, JSON", "rest section 6.2, TARGET"),
    "rest-114": (
        "each use of an external name makes a session; any failure of the store, too",
        "one session for a name; only a missing one is made",
        "rest section 11.29",
    ),
    "rest-116": ("the rest of a long body is dropped", "413", "rest section 11.11"),
    "rest section 6.1": (
        "sessions are kept under the engine id",
        "under the app, shown under the engine id",
        "one session, whatever the protocol",
    ),
    "rest-120": ("500 for a body that is no JSON", "told as text, or as base64", "rest section 7.5, TARGET"),
    "rest-122": (
        "429 in the text of an error decides; each attempt stores the message again",
        "the status decides; the run goes on, and the message is stored once",
        "rest section 11.28",
    ),
    "rest section 7.5": (
        "a session before the app is looked up; users with slashes; each delivery runs; failures are lost; 500 when busy",
        "404 and no session; `--`; once by its id; dead letters; 429 and 503 with Retry-After",
        "rest sections 7.5 (TARGET), 11.17, 11.28",
    ),
    "rest section 6.3": ("the id of a new session is not told", "X-Session-Id and custom_metadata", "FR-228"),
    "core section 10": (
        "what tools take and give is in spans at all times; no metrics",
        "elided like messages unless content is asked for; semantic-convention metrics",
        "12.33, DESIGN section 5",
    ),
    "rest section 5.2": ("all attributes are strings, a root's parent is zeros", "native types, null", "9.5, 11.30"),
    "rest section 5.3": (
        "a call is highlighted from the tool to the agent",
        "from the agent to the tool; its result goes back",
        "so do the arrows of google-adk",
    ),
    "FR-235": (
        "A2A maps its context to the id that a store makes",
        "a rejected task that says why: a context is the session of its id",
        "no store of ours refuses ids; two names for one conversation would break REST beside A2A",
    ),
    "rest-124": ("zero retries are an error", "an error of the flag; in code 0 is no retry", "it means something"),
    "rest section 7.3": (
        "keywords with flags of their own; port 8080 on all interfaces; signals are not handled",
        "one flag for each protocol; port 8000 on loopback; SIGTERM drains",
        "rest section 7.3, TARGET",
    ),
    "FR-225": ("an unknown session has no trace: 404", "`[]`, and 404 for an unknown event", "rest-100"),
    "rest-106": (
        "evaluation is 501, there is no metric",
        "evaluation is there",
        "rest section 10.1; as google-adk does",
    ),
    "rest section 10.1": (
        "an unknown metric is not evaluated; unknown cases are passed over; drafts of the editor may name any tool",
        "400; 404; no programs, tags, aliases or files outside",
        "a typo must not look like a pass; the editor must not start programs",
    ),
    "T098": ("adk_transfer_to_agent is restored", "never", "a remote agent must not steer the local tree"),
    "a2a section 3.2": ("the ephemeral artifact stays in the task", "streamed pieces are never stored", "T100"),
    "a2a section 3.2, default": (
        "one artifact for a run",
        "one for each event (`output=` has both)",
        "google-adk's client keeps no answer of an artifact that is never closed",
    ),
    "a2a section 3.5": ("a plain yes repeats the question", "answers a single pending confirmation", "issue 4"),
    "a2a section 3.7": ("the instruction is in the card", "never published", "DESIGN section 5"),
}
"""id or section -> what the reference does, what we do, why."""
