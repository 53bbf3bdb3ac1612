-- A database as release 0.1 (schema version 5) wrote it. Never change this file: it stands for files out there.
PRAGMA journal_mode = WAL;
CREATE TABLE polyport_schema (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at REAL NOT NULL
) STRICT;

CREATE TABLE sessions (
    sid INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    user TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (app, user, id)
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL REFERENCES sessions (sid) ON DELETE CASCADE,
    at REAL NOT NULL,
    invocation_id TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_session ON events (sid);
CREATE INDEX events_by_run ON events (invocation_id) WHERE invocation_id <> '';

CREATE TABLE session_state (
    sid INTEGER NOT NULL REFERENCES sessions (sid) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (sid, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE user_state (
    app TEXT NOT NULL,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (app, user, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE app_state (
    app TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (app, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_owners (
    oid INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    user TEXT NOT NULL,
    UNIQUE (app, user)
) STRICT;

CREATE TABLE memories (
    mid INTEGER PRIMARY KEY,
    oid INTEGER NOT NULL REFERENCES memory_owners (oid),
    session TEXT NOT NULL,
    place INTEGER NOT NULL,
    digest BLOB NOT NULL,
    at REAL NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (oid, session, place)
) STRICT;

CREATE VIRTUAL TABLE memory_words USING fts5 (
    owner,
    words,
    content = '',
    contentless_delete = 1,
    tokenize = 'ascii'
);
CREATE TABLE tasks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    app TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    state TEXT NOT NULL,
    status_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    run_id TEXT NOT NULL
) STRICT;
CREATE INDEX tasks_by_scope ON tasks (app, tenant, owner, status_ms, seq);
CREATE INDEX tasks_by_context ON tasks (app, tenant, owner, context_id, status_ms, seq);
CREATE INDEX tasks_by_state ON tasks (app, state, status_ms);

CREATE TABLE task_changes (
    seq INTEGER NOT NULL REFERENCES tasks (seq) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    event_id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (seq, version)
) STRICT;

CREATE TABLE task_messages (
    app TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    context TEXT NOT NULL,
    message_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    seq INTEGER NOT NULL REFERENCES tasks (seq) ON DELETE CASCADE,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (app, tenant, owner, context, message_id, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_messages_by_task ON task_messages (seq);

CREATE TABLE push_configs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    sent INTEGER NOT NULL,
    done INTEGER NOT NULL,
    holder TEXT NOT NULL,
    held_until_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE (task_id, id, app, tenant, owner)
) STRICT;
CREATE INDEX push_configs_open ON push_configs (app, held_until_ms) WHERE done = 0;

CREATE TABLE trigger_deliveries (
    app TEXT NOT NULL,
    source TEXT NOT NULL,
    origin TEXT NOT NULL,
    id TEXT NOT NULL,
    user TEXT NOT NULL,
    text TEXT NOT NULL,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    PRIMARY KEY (app, source, origin, id)
) STRICT;
CREATE INDEX trigger_deliveries_by_session ON trigger_deliveries (app, session_id);
CREATE INDEX trigger_deliveries_by_state ON trigger_deliveries (state, at_ms);
INSERT INTO polyport_schema VALUES (1, 'sessions', 1771999999.0);
INSERT INTO polyport_schema VALUES (2, 'memory', 1771999999.0);
INSERT INTO polyport_schema VALUES (3, 'tasks', 1771999999.0);
INSERT INTO polyport_schema VALUES (4, 'push', 1771999999.0);
INSERT INTO polyport_schema VALUES (5, 'triggers', 1771999999.0);
INSERT INTO sessions VALUES (1, 'app', 'ann', 's1', 3, 1, 1772000000.25, 1772000001.0);
INSERT INTO events VALUES (1, 1, 1772000000.25, 'e-1', '{"id":"ev-1","timestamp":"2026-02-25T06:13:20.250000Z","invocationId":"e-1","author":"user","content":{"parts":[{"text":"weather?"}],"role":"user"},"actions":{"stateDelta":{},"artifactDelta":{}}}');
INSERT INTO events VALUES (2, 1, 1772000001.0, 'e-1', '{"id":"ev-2","timestamp":"2026-02-25T06:13:21Z","invocationId":"e-1","author":"weather","content":{"parts":[{"text":"18°C"}],"role":"model"},"actions":{"stateDelta":{"city":"Tokyo"},"artifactDelta":{}},"finishReason":"STOP"}');
INSERT INTO session_state VALUES (1, 'city', '"Tokyo"');
INSERT INTO app_state VALUES ('app', 'limit', '3');
INSERT INTO user_state VALUES ('app', 'ann', 'tags', '["a","b"]');
INSERT INTO memory_owners VALUES (7, 'app', 'ann');
INSERT INTO memories VALUES (5, 7, 's1', 0, x'00112233445566778899aabbccddeeff', 1772000000.25, '{"id":"ev-1","content":{"parts":[{"text":"weather?"}],"role":"user"},"author":"user","timestamp":"2026-02-25T06:13:20.250000+00:00"}');
INSERT INTO memory_words (rowid, owner, words) VALUES (5, 'o7', 'weather');
INSERT INTO tasks VALUES (1, 't-1', 'app', '', 'ann', 'c-1', 'TASK_STATE_COMPLETED', 1772000002000, 1772000001000, 2, 'e-1');
INSERT INTO task_changes VALUES (1, 1, 'task', '', CAST('{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_SUBMITTED"}}}' AS BLOB));
INSERT INTO task_changes VALUES (1, 2, 'status', '', CAST('{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"}}}' AS BLOB));
INSERT INTO task_messages VALUES ('app', '', 'ann', '', 'm-1', 'd', 1, 1772000001000);
INSERT INTO push_configs VALUES (1, 'app', '', 'ann', 't-1', 'p-1', CAST('{"id":"p-1","taskId":"t-1","url":"https://example.com/hook","token":"tok"}' AS BLOB), 1, 0, '', 0, 1772000001000);
INSERT INTO trigger_deliveries VALUES ('app', 'pubsub', 'projects/p/subscriptions/s', 'm-1', 'projects--p--subscriptions--s', '', 's1', '', 'done', 1, '', 1772000002000, 0);
INSERT INTO trigger_deliveries VALUES ('app', 'webhook', 'shop', 'm-2', 'shop', '{"order":1}', 's-2', 'order', 'dead', 4, 'overloaded', 1772000003000, 0);
