-- Artifacts: `session` is "" for those of a user. `last` is the highest version ever given, which deletion leaves. `about` is JSON of
-- a blob without its data, "" for text. What is stored is not compressed: it mostly is already. Times are epoch seconds.
CREATE TABLE polyport_artifact_names (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (app, user_id, session, name)
);

CREATE TABLE polyport_artifacts (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    created_at double precision NOT NULL,
    about text NOT NULL,
    metadata text NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (app, user_id, session, name, version)
);
ALTER TABLE polyport_artifacts ALTER COLUMN data SET STORAGE EXTERNAL;
