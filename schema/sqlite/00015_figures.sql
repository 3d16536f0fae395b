-- +goose Up
ALTER TABLE ledger_tallies ADD COLUMN waits TEXT NOT NULL DEFAULT '[]';
ALTER TABLE ledger_tallies ADD COLUMN works TEXT NOT NULL DEFAULT '[]';

ALTER TABLE ledger_agents ADD COLUMN plugins TEXT NOT NULL DEFAULT '{}';

ALTER TABLE ledger_attempts ADD COLUMN due_at INTEGER;
ALTER TABLE ledger_attempts ADD COLUMN started_at INTEGER;
ALTER TABLE ledger_attempts ADD COLUMN renewals INTEGER;

ALTER TABLE ledger_backlog ADD COLUMN renewals INTEGER;
ALTER TABLE ledger_backlog ADD COLUMN usual_priority INTEGER;
ALTER TABLE ledger_backlog ADD COLUMN cancel_reason TEXT;
