-- +goose NO TRANSACTION
-- +goose Up
-- Programs work while this runs. Each statement is a transaction of its own: nobody who has read attempts and is
-- about to write some waits for a lock of this migration that waits for him. It may be run again.

-- A recurring item that is opened again within its period, because it has changed or somebody asks for it, is
-- completed once more in it: once per period and opening. Programs that do not know of openings complete a
-- period once at most, so they may go on.
CREATE UNIQUE INDEX IF NOT EXISTS ledger_attempts_round ON ledger_attempts (item_id, period, epoch) WHERE period IS NOT NULL AND outcome IN (0, 1);
DROP INDEX IF EXISTS ledger_attempts_period;
-- Which kinds have recurring items: only of those rounds are counted.
CREATE INDEX IF NOT EXISTS ledger_items_recurring ON ledger_items (kind) WHERE every IS NOT NULL;
