-- +goose Up
-- Named locks: one row per name that is held, or was and nobody has taken since. The fence is drawn
-- while the name is locked, from one sequence for all names; no number is ever given twice.
CREATE TABLE ledger_locks (
  name       text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 256),
  fence      bigint GENERATED ALWAYS AS IDENTITY CHECK (fence >= 1),
  token      uuid,                                                          -- NULL: released, and kept for its least time
  holder     text COLLATE "C" NOT NULL CHECK (octet_length(holder) BETWEEN 1 AND 256),
  since      timestamptz NOT NULL,
  keep_until timestamptz NOT NULL,                                          -- not before it, however early it is released
  expires_at timestamptz NOT NULL,
  CONSTRAINT kept_from_the_start CHECK (keep_until >= since),
  CONSTRAINT released_as_kept CHECK (token IS NOT NULL OR expires_at = keep_until)
);
CREATE UNIQUE INDEX ledger_locks_fence ON ledger_locks (fence);
