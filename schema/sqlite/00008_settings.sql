-- +goose Up
-- The settings in force, as a JSON object without secrets, of what works a kind: at the latest start,
-- and of each agent by kind. They are for people; no program is started by them.
ALTER TABLE ledger_kinds ADD COLUMN config TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger_agents ADD COLUMN configs TEXT NOT NULL DEFAULT '{}';
-- What items of a kind get where a command says nothing, by field of the payload:
-- {"table":{"value":"people","kept":true}}.
ALTER TABLE ledger_kinds ADD COLUMN defaults TEXT NOT NULL DEFAULT '';
