-- +goose Up
ALTER TABLE ledger_agents ADD COLUMN stalled TEXT NOT NULL DEFAULT '{}';
