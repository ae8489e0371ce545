-- One schema for both engines, in SQLite's words; dialect.go says what changes for PostgreSQL. Statements end with a
-- semicolon at the end of a line. Times are nanoseconds since 1970, UTC; 0 is no time. Text compares by bytes.

-- The one row that writers take turns on: the last revision given out, and the newest one pruned from events.
CREATE TABLE head (
  one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  rev    INTEGER NOT NULL,
  pruned INTEGER NOT NULL
);
INSERT INTO head (one, rev, pruned) VALUES (1, 0, 0);

-- A workspace's key is long and stands in every row, so rows carry a number instead.
CREATE TABLE scopes (
  id        INTEGER NOT NULL PRIMARY KEY,
  workspace TEXT NOT NULL,
  kind      TEXT NOT NULL,
  UNIQUE (workspace, kind)
);

-- id is the revision a document was inserted at: unique, growing, never used twice. The long columns come last so that
-- a read of the others does not walk overflow pages.
CREATE TABLE docs (
  id         INTEGER NOT NULL PRIMARY KEY,
  scope      INTEGER NOT NULL,
  key        TEXT NOT NULL,
  name       TEXT NOT NULL,
  version    TEXT NOT NULL,
  rev        INTEGER NOT NULL,
  created    INTEGER NOT NULL,
  updated    INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  status     TEXT NOT NULL,
  archived   INTEGER NOT NULL,
  hash       TEXT NOT NULL,
  parent     TEXT NOT NULL,
  body       BLOB,
  own        BLOB
);
CREATE UNIQUE INDEX docs_key ON docs (scope, key, version);
CREATE INDEX docs_list ON docs (scope, archived, id);
CREATE INDEX docs_versions ON docs (scope, key, id) WHERE version <> '';
CREATE INDEX docs_status ON docs (scope, status, id) WHERE status <> '';
CREATE INDEX docs_hash ON docs (scope, hash, id) WHERE hash <> '';
CREATE INDEX docs_parent ON docs (scope, parent, id) WHERE parent <> '';

CREATE TABLE events (
  rev     INTEGER NOT NULL PRIMARY KEY,
  time    INTEGER NOT NULL,
  scope   INTEGER NOT NULL,
  subject TEXT NOT NULL,
  type    TEXT NOT NULL,
  reason  TEXT NOT NULL,
  data    BLOB
);
CREATE INDEX events_subject ON events (subject, rev);

-- seq is the revision a task was inserted at.
CREATE TABLE tasks (
  seq    INTEGER NOT NULL PRIMARY KEY,
  id     TEXT NOT NULL,
  scope  INTEGER NOT NULL,
  job    TEXT NOT NULL,
  active INTEGER NOT NULL,
  body   BLOB NOT NULL,
  launch BLOB
);
CREATE UNIQUE INDEX tasks_id ON tasks (id);
CREATE INDEX tasks_job ON tasks (scope, job, seq);
CREATE INDEX tasks_active ON tasks (seq) WHERE active = 1;

CREATE TABLE leases (
  name    TEXT NOT NULL PRIMARY KEY,
  holder  TEXT NOT NULL,
  expires INTEGER NOT NULL
);

CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);
