-- +goose Up
CREATE INDEX ledger_attempts_lost ON ledger_attempts (kind, finished_at) WHERE outcome IN (6, 7);
