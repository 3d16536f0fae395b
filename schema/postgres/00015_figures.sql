-- +goose Up
-- How long attempts waited and were worked, per minute and kind: a JSON array of how many were in each range of
-- durations (package stats, Latencies). What older programs add has none.
ALTER TABLE ledger_tallies
  ADD COLUMN waits text NOT NULL DEFAULT '[]',
  ADD COLUMN works text NOT NULL DEFAULT '[]';

-- How the processes of an agent's plugins are: a JSON object by kind.
ALTER TABLE ledger_agents ADD COLUMN plugins text NOT NULL DEFAULT '{}';

-- When an attempt was due, when its start was marked, and how often its lease was renewed. NULL: not known, not marked,
-- never.
ALTER TABLE ledger_attempts
  ADD COLUMN due_at     timestamptz,
  ADD COLUMN started_at timestamptz,
  ADD COLUMN renewals   int;

-- A renewal of a whole lease is counted in the lease, any other in the row of the item; NULL is 0.
ALTER TABLE ledger_leases ADD COLUMN renewals int NOT NULL DEFAULT 0;
ALTER TABLE ledger_backlog
  ADD COLUMN renewals       int,
  ADD COLUMN usual_priority smallint, -- which it gets back when its round is over; NULL: the one that it has
  ADD COLUMN cancel_reason  text;     -- of a leased item that is to be cancelled
