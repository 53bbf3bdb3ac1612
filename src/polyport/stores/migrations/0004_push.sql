-- Push configurations of A2A tasks. `body` is JSON and has secrets; `sent` is the version of the last change of the task that the
-- receiver has, `done` 1 when there will be no more. One process at a time, `holder`, tells it. Times are epoch milliseconds.
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
