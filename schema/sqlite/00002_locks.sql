-- +goose Up
-- Named locks: one row per name that is held, or was and nobody has taken since. AUTOINCREMENT gives
-- every holder of any lock another, greater fence.
CREATE TABLE ledger_locks (
  name       TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 256),
  fence      INTEGER PRIMARY KEY AUTOINCREMENT CHECK (fence >= 1),
  token      BLOB CHECK (length(token) = 16), -- NULL: released, and kept for its least time
  holder     TEXT NOT NULL CHECK (octet_length(holder) BETWEEN 1 AND 256),
  since      INTEGER NOT NULL,
  keep_until INTEGER NOT NULL,                -- not before it, however early it is released
  expires_at INTEGER NOT NULL,
  CONSTRAINT kept_from_the_start CHECK (keep_until >= since),
  CONSTRAINT released_as_kept CHECK (token IS NOT NULL OR expires_at = keep_until)
) STRICT;
