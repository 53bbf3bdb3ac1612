-- A2A tasks: `polyport_tasks` holds what they are found by, `polyport_task_changes` what happened to each, in order, never changed. `body`
-- is JSON. `seq` counts tasks. `polyport_task_messages` knows which messages were taken in, by a digest of scope and message: what a
-- client calls its message may be longer than an index takes. Push configurations have secrets in their `body`; `sent` is the version
-- of the last change that the receiver has; one process at a time, `holder`, tells it. Times are epoch milliseconds.
CREATE TABLE polyport_tasks (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    app text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    status_ms bigint NOT NULL,
    created_ms bigint NOT NULL,
    version bigint NOT NULL,
    run_id text NOT NULL
);
CREATE INDEX polyport_tasks_by_scope ON polyport_tasks (app, tenant, owner, status_ms, seq);
CREATE INDEX polyport_tasks_by_context ON polyport_tasks (app, tenant, owner, context_id, status_ms, seq);
CREATE INDEX polyport_tasks_by_state ON polyport_tasks (app, state, status_ms);

CREATE TABLE polyport_task_changes (
    seq bigint NOT NULL REFERENCES polyport_tasks (seq) ON DELETE CASCADE,
    version bigint NOT NULL,
    kind text NOT NULL,
    event_id text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (seq, version)
);

CREATE TABLE polyport_task_messages (
    digest bytea PRIMARY KEY,
    seq bigint NOT NULL REFERENCES polyport_tasks (seq) ON DELETE CASCADE,
    at_ms bigint NOT NULL
);
CREATE INDEX polyport_task_messages_by_task ON polyport_task_messages (seq);

CREATE TABLE polyport_push_configs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    sent bigint NOT NULL,
    done boolean NOT NULL,
    holder text NOT NULL,
    held_until_ms bigint NOT NULL,
    created_ms bigint NOT NULL,
    UNIQUE (task_id, id, app, tenant, owner)
);
CREATE INDEX polyport_push_configs_open ON polyport_push_configs (app, held_until_ms) WHERE NOT done;
