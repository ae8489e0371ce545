-- The servers that have used the database, where it can have several. seen is when a server last said that it lives, by the
-- clock of the database; 0 is for one that has ended. The row stays, because documents may name its address.
CREATE TABLE servers (
  name    TEXT NOT NULL PRIMARY KEY,
  id      TEXT NOT NULL,
  home    TEXT NOT NULL,
  who     TEXT NOT NULL,
  url     TEXT NOT NULL,
  address TEXT NOT NULL,
  socket  TEXT NOT NULL,
  since   INTEGER NOT NULL,
  seen    INTEGER NOT NULL
) WITHOUT ROWID;
