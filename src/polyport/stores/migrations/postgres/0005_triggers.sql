-- Deliveries to triggers: what was sent, by whom and under which id, and what became of it. `digest` is that of the delivery's key,
-- which may be longer than an index takes. `session_id` is where the agent works at it. `text` is UTF-8, and goes once it is done.
-- Times are epoch milliseconds.
CREATE TABLE polyport_trigger_deliveries (
    digest bytea PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    source text NOT NULL,
    origin text NOT NULL,
    id text NOT NULL,
    user_id text NOT NULL,
    text bytea NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    at_ms bigint NOT NULL,
    lease_ms bigint NOT NULL
);
CREATE INDEX polyport_trigger_deliveries_by_session ON polyport_trigger_deliveries (app, session_id);
CREATE INDEX polyport_trigger_deliveries_by_state ON polyport_trigger_deliveries (state, at_ms);
