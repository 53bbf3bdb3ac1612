-- Sessions, their events in order of `seq`, and state by scope: one row for each key, so that a write touches only the
-- keys that it changes. `sid` is never used twice (caches rely on it). Times are epoch seconds.
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
