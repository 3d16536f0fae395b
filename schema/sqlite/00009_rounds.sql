-- +goose Up
CREATE UNIQUE INDEX ledger_attempts_round ON ledger_attempts (item_id, period, epoch) WHERE period IS NOT NULL AND outcome IN (0, 1);
DROP INDEX ledger_attempts_period;
CREATE INDEX ledger_items_recurring ON ledger_items (kind) WHERE every IS NOT NULL;
