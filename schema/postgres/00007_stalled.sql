-- +goose Up
-- Kinds to which an agent gives nothing for a while because their plugin crashes again and again, with
-- when it tries again: {"thumb":"2026-11-20T09:05:00.123456Z"}.
ALTER TABLE ledger_agents ADD COLUMN stalled text NOT NULL DEFAULT '{}';
