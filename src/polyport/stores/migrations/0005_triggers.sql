-- Deliveries to triggers: what was sent, by whom and under which id, and what became of it. `session_id` is where the agent works
-- at it. `text` goes once it is done. Times are epoch milliseconds.
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
