-- +goose Up
-- What ended, per agent, kind and minute, added up by the workers: charts and rates read these few
-- rows instead of counting attempts. A worker that is killed loses what it had not written, so no
-- figure that must be exact comes from here.
CREATE TABLE ledger_tallies (
  span   int      NOT NULL CHECK (span IN (60, 3600)),                      -- seconds that a row is about
  at     timestamptz NOT NULL,                                              -- start of the span
  kind   text COLLATE "C" NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  agent  text COLLATE "C" NOT NULL CHECK (octet_length(agent) BETWEEN 1 AND 256),
  done   bigint NOT NULL CHECK (done >= 0),                                 -- attempts: done, skipped
  failed bigint NOT NULL CHECK (failed >= 0),                               -- failed, crashed
  other  bigint NOT NULL CHECK (other >= 0),
  worked bigint NOT NULL CHECK (worked >= 0),                               -- µs in handlers
  PRIMARY KEY (span, at, kind, agent)
);

-- With the indexes of final and of failed attempts, all attempts by when they ended. Few have an
-- entry: those that ended well, or failed, have not.
CREATE INDEX ledger_attempts_rest ON ledger_attempts (kind, finished_at) WHERE (NOT final OR outcome IN (3, 4, 6, 7)) AND outcome NOT IN (2, 8);

-- Which shard an agent claims (0 of 0: all), and how far its clock is ahead of the database's.
ALTER TABLE ledger_agents
  ADD COLUMN shard_index smallint NOT NULL DEFAULT 0,
  ADD COLUMN shard_count smallint NOT NULL DEFAULT 0,
  ADD COLUMN clock_skew  bigint   NOT NULL DEFAULT 0; -- µs
