-- +goose Up
-- A recurring item that is opened again within its period, because it has changed or somebody asks for it, is
-- completed once more in it: once per period and opening. Programs that do not know of openings complete a
-- period once at most, so they may go on.
CREATE UNIQUE INDEX ledger_attempts_round ON ledger_attempts (item_id, period, epoch) WHERE period IS NOT NULL AND outcome IN (0, 1);
DROP INDEX ledger_attempts_period;
-- Which kinds have recurring items: only of those rounds are counted.
CREATE INDEX ledger_items_recurring ON ledger_items (kind) WHERE every IS NOT NULL;
