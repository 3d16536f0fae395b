-- +goose Up
-- A claim is one row: who holds its items, and until when. An item that it holds has its lock_id in the backlog, where
-- a claim changes nothing that an index has.
CREATE TABLE ledger_leases (
  lock_id    uuid PRIMARY KEY,
  kind       text COLLATE "C" NOT NULL,
  agent      text COLLATE "C" NOT NULL CHECK (octet_length(agent) BETWEEN 1 AND 256),
  leased_at  timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,                                          -- of items that have no expiry of their own
  due_at     timestamptz NOT NULL,                                          -- no item expires before
  split      boolean NOT NULL DEFAULT false,                                -- items may have an expiry of their own
  items      bigint[] NOT NULL CHECK (cardinality(items) > 0)               -- that were claimed
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ledger_leases ALTER items SET STORAGE EXTERNAL;
CREATE INDEX ledger_leases_due   ON ledger_leases (due_at);
CREATE INDEX ledger_leases_agent ON ledger_leases (agent);

-- No program that knows the old columns writes from here on: their names are gone.
LOCK TABLE ledger_backlog;
INSERT INTO ledger_leases (lock_id, kind, agent, leased_at, expires_at, due_at, split, items)
  SELECT lock_id, min(kind), min(locked_by), min(leased_at), min(expires_at), min(expires_at), true, array_agg(item_id ORDER BY item_id)
  FROM ledger_backlog WHERE state = 2 GROUP BY lock_id;

DROP INDEX ledger_backlog_ready, ledger_backlog_waiting, ledger_backlog_leased, ledger_backlog_stuck, ledger_backlog_gated,
  ledger_backlog_lanes, ledger_backlog_running;
ALTER TABLE ledger_backlog
  DROP COLUMN locked_by CASCADE, -- with what was checked of a lease
  DROP COLUMN leased_at;
ALTER TABLE ledger_backlog RENAME state TO stage;
ALTER TABLE ledger_backlog
  DROP CONSTRAINT cancel_while_leased_or_doubt,
  DROP CONSTRAINT reopen_while_leased_or_doubt,
  DROP CONSTRAINT ledger_backlog_state_check,
  DROP CONSTRAINT ledger_backlog_attempt_check,
  DROP CONSTRAINT ledger_backlog_epoch_check,
  DROP CONSTRAINT ledger_backlog_priority_check,
  DROP CONSTRAINT ledger_backlog_slot_check,
  DROP CONSTRAINT ledger_backlog_failures_check,
  DROP CONSTRAINT ledger_backlog_crashes_check,
  DROP CONSTRAINT ledger_backlog_losses_check,
  DROP CONSTRAINT ledger_backlog_gate_check,
  DROP CONSTRAINT ledger_backlog_check,
  DROP CONSTRAINT ledger_backlog_check1,
  DROP CONSTRAINT ledger_backlog_check2,
  ADD COLUMN running boolean NOT NULL DEFAULT false; -- leased, and counted under a limit
UPDATE ledger_backlog SET stage = 1, running = limit_key IS NOT NULL WHERE stage = 2;

-- stage: 0 waiting, 1 ready or, with a lock_id, leased, 3 dead, 4 in doubt. Each claim evaluates all constraints, and
-- few long ones cost less than many short ones.
ALTER TABLE ledger_backlog
  ADD CONSTRAINT numbers_in_range CHECK (stage IN (0, 1, 3, 4) AND attempt >= 0 AND epoch >= 1 AND priority BETWEEN -2 AND 2
    AND slot BETWEEN 0 AND 1023 AND failures >= 0 AND crashes >= 0 AND losses >= 0 AND gate BETWEEN 0 AND 2),
  ADD CONSTRAINT lease_is_whole CHECK (CASE
    WHEN lock_id IS NULL THEN started_at IS NULL AND expires_at IS NULL AND NOT running AND (stage = 4 OR NOT (cancel OR reopen))
    ELSE stage = 1 AND blocked_on IS NULL AND passed_at IS NULL AND running = (limit_key IS NOT NULL) END),
  ADD CONSTRAINT filed_or_blocked_while_ready CHECK ((blocked_on IS NULL AND passed_at IS NULL AND limit_key IS NULL) OR (stage = 1
    AND (blocked_on IS NULL OR (gate > 0 AND octet_length(blocked_on) BETWEEN 1 AND 256))
    AND (passed_at IS NULL OR gate > 0)
    AND (limit_key IS NULL OR (blocked_on IS NULL AND octet_length(limit_key) <= 2048 AND gate <= 1 AND (gate = 1 OR lock_id IS NOT NULL))))),
  SET (fillfactor = 45);
CREATE INDEX ledger_backlog_ready   ON ledger_backlog (kind, priority, due_at, item_id) WHERE stage = 1 AND gate = 0;
CREATE INDEX ledger_backlog_waiting ON ledger_backlog (kind, due_at, item_id) WHERE stage = 0;
CREATE INDEX ledger_backlog_stuck   ON ledger_backlog (stage, kind, item_id) WHERE stage >= 3;
CREATE INDEX ledger_backlog_gated   ON ledger_backlog (kind, priority, due_at, item_id) WHERE stage = 1 AND gate > 0 AND blocked_on IS NULL;
CREATE INDEX ledger_backlog_lanes   ON ledger_backlog (kind, limit_key, priority, due_at, item_id) WHERE limit_key IS NOT NULL AND NOT running;
CREATE INDEX ledger_backlog_running ON ledger_backlog (kind, limit_key) WHERE limit_key IS NOT NULL AND running;

UPDATE ledger_meta SET v = '14' WHERE k = 'compatible_from';
