-- +goose Up
CREATE TABLE ledger_tallies (
  span   INTEGER NOT NULL CHECK (span IN (60, 3600)),
  at     INTEGER NOT NULL,
  kind   TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  agent  TEXT NOT NULL CHECK (octet_length(agent) BETWEEN 1 AND 256),
  done   INTEGER NOT NULL CHECK (done >= 0),
  failed INTEGER NOT NULL CHECK (failed >= 0),
  other  INTEGER NOT NULL CHECK (other >= 0),
  worked INTEGER NOT NULL CHECK (worked >= 0),
  PRIMARY KEY (span, at, kind, agent)
) STRICT, WITHOUT ROWID;

CREATE INDEX ledger_attempts_rest ON ledger_attempts (kind, finished_at) WHERE (final = 0 OR outcome IN (3, 4, 6, 7)) AND outcome NOT IN (2, 8);

ALTER TABLE ledger_agents ADD COLUMN shard_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_agents ADD COLUMN shard_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_agents ADD COLUMN clock_skew  INTEGER NOT NULL DEFAULT 0;
