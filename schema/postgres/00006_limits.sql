-- +goose Up
-- limits is JSON of ledger.Limits, '' none. laned is set for good with the first limit of the kind.
ALTER TABLE ledger_kinds
  ADD COLUMN limits text COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(limits) <= 1024),
  ADD COLUMN laned  boolean NOT NULL DEFAULT false;

-- Under which limits of its kind a ready or leased item is counted: '' those in all, else those of its
-- shard key. It has gate 1 then, so it does not lie in the index of what is claimed freely; gate 0 if
-- it was leased before the limits were what they are. Claims of the kind write it: what was added or
-- became ready again since has none yet.
ALTER TABLE ledger_backlog
  ADD COLUMN limit_key text COLLATE "C" CHECK (limit_key IS NULL OR (blocked_on IS NULL AND octet_length(limit_key) <= 2048 AND (state = 1 AND gate = 1 OR state = 2 AND gate <= 1)));
CREATE INDEX ledger_backlog_lanes   ON ledger_backlog (kind, limit_key, priority, due_at, item_id) WHERE limit_key IS NOT NULL AND lock_id IS NULL;
CREATE INDEX ledger_backlog_running ON ledger_backlog (kind, limit_key) WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL;

-- How far the rate of a kind (limit_key '') or of one of its shard keys is used up; see ledger.Lane.
CREATE TABLE ledger_lanes (
  kind      text COLLATE "C" NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 64),
  limit_key text COLLATE "C" NOT NULL CHECK (octet_length(limit_key) <= 2048),
  next_at   timestamptz NOT NULL,
  PRIMARY KEY (kind, limit_key)
);

-- A program that does not know limits would claim without them.
UPDATE ledger_meta SET v = '6' WHERE k = 'compatible_from';
