-- +goose Up
-- The same tables, columns and codes as on Postgres, where each has its comment. Times are integer microseconds UTC, lock_id
-- is the 16 bytes of a UUID. The row of an item keeps its lease: an index without the state would be slower here.
CREATE TABLE ledger_meta (
  k TEXT PRIMARY KEY,
  v TEXT NOT NULL
) STRICT;
INSERT INTO ledger_meta (k, v) VALUES ('ledger_id', lower(hex(randomblob(16)))), ('compatible_from', '17');

CREATE TABLE ledger_kinds (
  kind         TEXT PRIMARY KEY CHECK (octet_length(kind) BETWEEN 1 AND 64 AND kind NOT GLOB '*[^a-z0-9-]*' AND kind NOT GLOB '-*'),
  plugin       TEXT NOT NULL DEFAULT '' CHECK (octet_length(plugin) <= 64),
  input        TEXT NOT NULL DEFAULT '{}' CHECK (octet_length(input) <= 4096),
  on_lost      INTEGER NOT NULL DEFAULT 0 CHECK (on_lost IN (0, 1)),
  max_failures INTEGER NOT NULL DEFAULT 0 CHECK (max_failures BETWEEN 0 AND 10000),
  max_crashes  INTEGER NOT NULL DEFAULT 0 CHECK (max_crashes BETWEEN 0 AND 10000),
  max_lost     INTEGER NOT NULL DEFAULT 0 CHECK (max_lost BETWEEN 0 AND 10000),
  backoff_base INTEGER NOT NULL DEFAULT 0 CHECK (backoff_base >= 0),
  backoff_cap  INTEGER NOT NULL DEFAULT 0 CHECK (backoff_cap >= 0),
  timeout      INTEGER NOT NULL DEFAULT 0 CHECK (timeout >= 0),
  keep         INTEGER NOT NULL DEFAULT 0 CHECK (keep >= 0),
  paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  limits       TEXT NOT NULL DEFAULT '' CHECK (octet_length(limits) <= 1024),
  laned        INTEGER NOT NULL DEFAULT 0 CHECK (laned IN (0, 1)),
  definition   TEXT NOT NULL DEFAULT '' CHECK (octet_length(definition) <= 256),
  config       TEXT NOT NULL DEFAULT '',
  defaults     TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE ledger_items (
  id            INTEGER PRIMARY KEY AUTOINCREMENT, -- an id is never used again: tokens and logs refer to it
  kind          TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  scope         TEXT NOT NULL DEFAULT '' CHECK (octet_length(scope) <= 256),
  key           TEXT NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 2048),
  fingerprint   TEXT NOT NULL DEFAULT '' CHECK (octet_length(fingerprint) <= 256),
  epoch         INTEGER NOT NULL DEFAULT 1 CHECK (epoch >= 1),
  slot          INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 1023),
  shard_key     TEXT CHECK (octet_length(shard_key) <= 2048),
  every         TEXT CHECK (octet_length(every) BETWEEN 1 AND 128),
  zone          TEXT CHECK (octet_length(zone) <= 64),
  payload       BLOB CHECK (octet_length(payload) <= 1048576),
  source        TEXT CHECK (octet_length(source) <= 2048),
  base_attempt  INTEGER NOT NULL DEFAULT 0 CHECK (base_attempt >= 0),
  created_at    INTEGER NOT NULL,
  failing_since INTEGER,
  recovered_at  INTEGER,
  UNIQUE (kind, scope, key)
) STRICT;
CREATE INDEX ledger_items_recurring ON ledger_items (kind) WHERE every IS NOT NULL;

-- state: 0 waiting 1 ready 2 leased 3 dead 4 in doubt.
CREATE TABLE ledger_backlog (
  item_id        INTEGER PRIMARY KEY,
  due_at         INTEGER NOT NULL,
  leased_at      INTEGER,
  started_at     INTEGER,
  expires_at     INTEGER,
  lock_id        BLOB CHECK (length(lock_id) = 16),
  attempt        INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  epoch          INTEGER NOT NULL DEFAULT 1 CHECK (epoch >= 1),
  state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
  priority       INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -2 AND 2),
  slot           INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 1023),
  gate           INTEGER NOT NULL DEFAULT 0 CHECK (gate IN (0, 1)),
  failures       INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  crashes        INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  losses         INTEGER NOT NULL DEFAULT 0 CHECK (losses >= 0),
  alone          INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
  reopen         INTEGER NOT NULL DEFAULT 0 CHECK (reopen IN (0, 1)),
  cancel         INTEGER NOT NULL DEFAULT 0 CHECK (cancel IN (0, 1)),
  kind           TEXT NOT NULL,
  locked_by      TEXT CHECK (octet_length(locked_by) BETWEEN 1 AND 256),
  limit_key      TEXT,
  renewals       INTEGER,
  usual_priority INTEGER,
  cancel_reason  TEXT,
  CONSTRAINT lease_is_whole CHECK (CASE WHEN state = 2 THEN locked_by IS NOT NULL AND lock_id IS NOT NULL AND leased_at IS NOT NULL AND expires_at IS NOT NULL
                                        ELSE coalesce(locked_by, lock_id, leased_at, started_at, expires_at) IS NULL END),
  CONSTRAINT cancel_while_leased_or_doubt CHECK (state IN (2, 4) OR cancel = 0),
  CONSTRAINT reopen_while_leased_or_doubt CHECK (state IN (2, 4) OR reopen = 0),
  CONSTRAINT filed_while_ready CHECK (CASE WHEN limit_key IS NULL THEN gate = 0
                                           ELSE octet_length(limit_key) <= 2048 AND (state = 1 AND gate = 1 OR state = 2) END)
) STRICT;
CREATE INDEX ledger_backlog_ready   ON ledger_backlog (kind, priority, due_at, item_id) WHERE state = 1 AND gate = 0;
CREATE INDEX ledger_backlog_waiting ON ledger_backlog (kind, due_at, item_id) WHERE state = 0;
CREATE INDEX ledger_backlog_leased  ON ledger_backlog (expires_at) WHERE state = 2;
CREATE INDEX ledger_backlog_stuck   ON ledger_backlog (state, kind, item_id) WHERE state >= 3;
CREATE INDEX ledger_backlog_lanes   ON ledger_backlog (kind, limit_key, priority, due_at, item_id) WHERE limit_key IS NOT NULL AND lock_id IS NULL;
CREATE INDEX ledger_backlog_running ON ledger_backlog (kind, limit_key) WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL;

CREATE TABLE ledger_lanes (
  kind      TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  limit_key TEXT NOT NULL CHECK (octet_length(limit_key) <= 2048),
  next_at   INTEGER NOT NULL,
  PRIMARY KEY (kind, limit_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_attempts (
  item_id     INTEGER NOT NULL,
  due_at      INTEGER,
  leased_at   INTEGER,
  started_at  INTEGER,
  finished_at INTEGER NOT NULL,
  period      INTEGER,
  attempt     INTEGER NOT NULL CHECK (attempt >= 1),
  epoch       INTEGER NOT NULL CHECK (epoch >= 1),
  outcome     INTEGER NOT NULL CHECK (outcome BETWEEN 0 AND 8),
  final       INTEGER NOT NULL CHECK (final IN (0, 1)),
  renewals    INTEGER,
  lock_id     BLOB CHECK (length(lock_id) = 16),
  kind        TEXT NOT NULL,
  agent       TEXT NOT NULL CHECK (octet_length(agent) BETWEEN 1 AND 256),
  worker      TEXT CHECK (octet_length(worker) <= 256),
  code        TEXT CHECK (octet_length(code) BETWEEN 1 AND 64),
  cause       TEXT CHECK (length(cause) = 12),
  error       TEXT CHECK (octet_length(error) <= 8192),
  log         TEXT CHECK (octet_length(log) <= 16384),
  output      BLOB CHECK (octet_length(output) <= 1048576),
  PRIMARY KEY (item_id, attempt)
) STRICT;
CREATE INDEX ledger_attempts_final  ON ledger_attempts (kind, finished_at) WHERE final = 1;
CREATE INDEX ledger_attempts_failed ON ledger_attempts (kind, finished_at) WHERE outcome IN (2, 8);
CREATE INDEX ledger_attempts_rest   ON ledger_attempts (kind, finished_at) WHERE (final = 0 OR outcome IN (3, 4, 6, 7)) AND outcome NOT IN (2, 8);
CREATE INDEX ledger_attempts_lost   ON ledger_attempts (kind, finished_at) WHERE outcome IN (6, 7);
CREATE UNIQUE INDEX ledger_attempts_round ON ledger_attempts (item_id, period, epoch) WHERE period IS NOT NULL AND outcome IN (0, 1);

CREATE TABLE ledger_agents (
  agent       TEXT PRIMARY KEY CHECK (octet_length(agent) BETWEEN 1 AND 256),
  host        TEXT NOT NULL,
  pid         INTEGER NOT NULL,
  process     TEXT NOT NULL DEFAULT '',
  version     TEXT NOT NULL,
  kinds       TEXT NOT NULL,
  configs     TEXT NOT NULL DEFAULT '{}',
  stalled     TEXT NOT NULL DEFAULT '{}',
  plugins     TEXT NOT NULL DEFAULT '{}',
  shard_index INTEGER NOT NULL DEFAULT 0,
  shard_count INTEGER NOT NULL DEFAULT 0,
  clock_skew  INTEGER NOT NULL DEFAULT 0,
  started_at  INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE ledger_tallies (
  at     INTEGER NOT NULL,
  kind   TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  agent  TEXT NOT NULL CHECK (octet_length(agent) BETWEEN 1 AND 256),
  done   INTEGER NOT NULL CHECK (done >= 0),
  failed INTEGER NOT NULL CHECK (failed >= 0),
  other  INTEGER NOT NULL CHECK (other >= 0),
  worked INTEGER NOT NULL CHECK (worked >= 0),
  waits  TEXT NOT NULL DEFAULT '[]',
  works  TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (at, kind, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_journal (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  actor   TEXT NOT NULL,
  action  TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail  TEXT NOT NULL,
  changed INTEGER NOT NULL
) STRICT;

-- AUTOINCREMENT gives every holder of any lock another, greater fence.
CREATE TABLE ledger_locks (
  name       TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 256),
  fence      INTEGER PRIMARY KEY AUTOINCREMENT CHECK (fence >= 1),
  token      BLOB CHECK (length(token) = 16),
  holder     TEXT NOT NULL CHECK (octet_length(holder) BETWEEN 1 AND 256),
  since      INTEGER NOT NULL,
  keep_until INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  CONSTRAINT kept_from_the_start CHECK (keep_until >= since),
  CONSTRAINT released_as_kept CHECK (token IS NOT NULL OR expires_at = keep_until)
) STRICT;
