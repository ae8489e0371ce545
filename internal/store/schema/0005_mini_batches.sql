-- The mini-batches of a job, which its tasks take one by one. state is a berth.BatchState; start and size say where the rows
-- are that it gave, in the file of the job's results; work is the list of its items.
CREATE TABLE batches (
  scope  INTEGER NOT NULL,
  job    TEXT NOT NULL,
  number INTEGER NOT NULL,
  state  INTEGER NOT NULL,
  owner  TEXT NOT NULL,
  tries  INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  start  INTEGER NOT NULL,
  size   INTEGER NOT NULL,
  loose  INTEGER NOT NULL,
  error  TEXT NOT NULL,
  work   BLOB NOT NULL,
  PRIMARY KEY (scope, job, number)
) WITHOUT ROWID;
CREATE INDEX batches_state ON batches (scope, job, state, number);

-- How far the jobs have come that have mini-batches: a berth.Work.
CREATE TABLE works (
  scope INTEGER NOT NULL,
  job   TEXT NOT NULL,
  body  BLOB NOT NULL,
  PRIMARY KEY (scope, job)
) WITHOUT ROWID;
