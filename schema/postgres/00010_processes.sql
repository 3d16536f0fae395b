-- +goose Up
-- The name of an agent's process among all that there have been on any machine, '' if it is not known; see
-- ledger.ThisProcess.
ALTER TABLE ledger_agents ADD COLUMN process text NOT NULL DEFAULT '';
