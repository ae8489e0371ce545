-- The index of blobs: names in containers, and the content each points at.
CREATE TABLE blobs (
  container    TEXT NOT NULL,
  name         TEXT NOT NULL,
  size         INTEGER NOT NULL,
  hash         TEXT NOT NULL,
  live         TEXT NOT NULL,
  content_type TEXT NOT NULL,
  content_md5  TEXT NOT NULL,
  meta         TEXT NOT NULL,
  etag         TEXT NOT NULL,
  created      INTEGER NOT NULL,
  modified     INTEGER NOT NULL,
  PRIMARY KEY (container, name)
) WITHOUT ROWID;
CREATE INDEX blobs_hash ON blobs (hash) WHERE hash <> '';
