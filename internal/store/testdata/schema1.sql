-- A database of schema version 1, with a job. It never changes.
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (1);
CREATE TABLE head (
  one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  rev    INTEGER NOT NULL,
  pruned INTEGER NOT NULL
);
INSERT INTO head (one, rev, pruned) VALUES (1, 0, 0);
CREATE TABLE scopes (
  id        INTEGER NOT NULL PRIMARY KEY,
  workspace TEXT NOT NULL,
  kind      TEXT NOT NULL,
  UNIQUE (workspace, kind)
);
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
UPDATE head SET rev = 5;
INSERT INTO scopes (id, workspace, kind) VALUES (1, '/w', 'jobs'), (3, '/w', '');
INSERT INTO docs (id, scope, key, name, version, rev, created, updated, created_by, status, archived, hash, parent, body) VALUES (2, 1, 'old', 'Old', '', 4, 1700000000000000000, 1700000000000000000, 'me', 'Completed', 0, '', '', x'7b2261223a317d');
INSERT INTO events (rev, time, scope, subject, type, reason) VALUES (5, 1700000000000000000, 3, 'jobs/Old', 'job.created', '');
INSERT INTO tasks (seq, id, scope, job, active, body) VALUES (4, 'Old.1', 3, 'Old', 0, x'7b7d');
