-- +goose Up
ALTER TABLE ledger_agents ADD COLUMN process TEXT NOT NULL DEFAULT '';
