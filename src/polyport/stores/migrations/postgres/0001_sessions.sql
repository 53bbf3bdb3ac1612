-- Sessions, their events in order of `seq`, and state by scope: one row for each key, so that a write touches only the keys that it
-- changes. `key` is a JSON string, `value` JSON. `sid` is never used twice. Times are epoch seconds: no time zone can move them.
-- No index holds what an append changes, so that the row of a session is renewed in its place.
CREATE TABLE polyport_schema (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at double precision NOT NULL
);

CREATE TABLE polyport_sessions (
    sid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    fence bigint NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    UNIQUE (app, user_id, id)
) WITH (fillfactor = 80);

CREATE TABLE polyport_events (
    sid bigint NOT NULL REFERENCES polyport_sessions (sid) ON DELETE CASCADE,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at double precision NOT NULL,
    invocation_id text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (sid, seq)
);
CREATE INDEX polyport_events_by_run ON polyport_events (invocation_id) WHERE invocation_id <> '';

CREATE TABLE polyport_session_state (
    sid bigint NOT NULL REFERENCES polyport_sessions (sid) ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (sid, key)
) WITH (fillfactor = 80);

CREATE TABLE polyport_user_state (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (app, user_id, key)
) WITH (fillfactor = 80);

CREATE TABLE polyport_app_state (
    app text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (app, key)
) WITH (fillfactor = 80);

-- Appends, in the order of the arrays; the caller sorts them by session, and pairs of state by key, so that two calls at once lock rows
-- in one order. A fence or revision that is null does not matter. State belongs to the append with that number (`state_of`, from 1)
-- and to a scope: 0 session, 1 app, 2 user. Gives a row for each append: status 0 done, 1 no such session, 2 superseded, 3 changed.
CREATE FUNCTION polyport_append(
    apps text[], users text[], ids text[], claims integer[], fences bigint[], revisions bigint[], nows double precision[],
    ats double precision[], runs text[], bodies text[],
    state_of integer[], scopes integer[], keys text[], vals text[]
) RETURNS TABLE (number integer, status integer, sid bigint, fence bigint, updated_at double precision)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    done_sids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(ids)]);
    head record;
BEGIN
    FOR i IN 1 .. cardinality(ids) LOOP
        UPDATE polyport_sessions AS s
            SET revision = s.revision + 1, fence = s.fence + claims[i], updated_at = greatest(s.updated_at, nows[i])
            WHERE s.app = apps[i] AND s.user_id = users[i] AND s.id = ids[i]
            AND s.fence = coalesce(fences[i], s.fence) AND s.revision = coalesce(revisions[i], s.revision)
            RETURNING s.sid, s.fence, s.updated_at INTO head;
        IF FOUND THEN
            INSERT INTO polyport_events (sid, at, invocation_id, body)
                VALUES (head.sid, ats[i], runs[i], bodies[i]);
            done_sids[i] := head.sid;
            status := 0; sid := head.sid; fence := head.fence; updated_at := head.updated_at;
        ELSE
            SELECT s.fence INTO head FROM polyport_sessions AS s
                WHERE s.app = apps[i] AND s.user_id = users[i] AND s.id = ids[i];
            status := CASE
                WHEN NOT FOUND THEN 1
                WHEN head.fence <> coalesce(fences[i], head.fence) THEN 2
                ELSE 3
            END;
            sid := NULL; fence := NULL; updated_at := NULL;
        END IF;
        number := i;
        RETURN NEXT;
    END LOOP;
    IF cardinality(state_of) > 0 THEN
        INSERT INTO polyport_session_state (sid, key, value)
            SELECT DISTINCT ON (p.sid, p.key) p.sid, p.key, p.value
            FROM (
                SELECT done_sids[n] AS sid, k COLLATE "C" AS key, v AS value, n
                FROM unnest(state_of, scopes, keys, vals) AS u (n, scope, k, v) WHERE scope = 0
            ) AS p
            WHERE p.sid IS NOT NULL ORDER BY p.sid, p.key, p.n DESC
            ON CONFLICT (sid, key) DO UPDATE SET value = excluded.value;
        INSERT INTO polyport_user_state (app, user_id, key, value)
            SELECT DISTINCT ON (p.app, p.user_id, p.key) p.app, p.user_id, p.key, p.value
            FROM (
                SELECT apps[n] COLLATE "C" AS app, users[n] COLLATE "C" AS user_id, k COLLATE "C" AS key, v AS value, n
                FROM unnest(state_of, scopes, keys, vals) AS u (n, scope, k, v)
                WHERE scope = 2 AND done_sids[n] IS NOT NULL
            ) AS p
            ORDER BY p.app, p.user_id, p.key, p.n DESC
            ON CONFLICT (app, user_id, key) DO UPDATE SET value = excluded.value;
        INSERT INTO polyport_app_state (app, key, value)
            SELECT DISTINCT ON (p.app, p.key) p.app, p.key, p.value
            FROM (
                SELECT apps[n] COLLATE "C" AS app, k COLLATE "C" AS key, v AS value, n
                FROM unnest(state_of, scopes, keys, vals) AS u (n, scope, k, v)
                WHERE scope = 1 AND done_sids[n] IS NOT NULL
            ) AS p
            ORDER BY p.app, p.key, p.n DESC
            ON CONFLICT (app, key) DO UPDATE SET value = excluded.value;
    END IF;
END
$$;
