-- Long-term memory: what users' sessions said, one row for each event with text, and the words to find it by. `place` is the
-- number of the event in its session; `session` is no reference, for memories outlive their session. The index keeps no text
-- of its own. `owner` in it is `o<oid>`, so that a search looks at one user's entries only; `words` were made from the text
-- before (memory_rules.py), so that the tokenizer only has to split at spaces. Times are epoch seconds.
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
