-- A2A tasks: `tasks` holds what they are found by, `task_changes` what happened to each, in order, never changed. `body` is JSON.
-- `seq` counts tasks and is never used twice. `task_messages` knows which messages were taken in. Times are epoch milliseconds.
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
