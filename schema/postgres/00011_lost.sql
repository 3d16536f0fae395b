-- +goose NO TRANSACTION
-- +goose Up
-- Few attempts are lost or may have taken effect. Those that failed have an index already, so what went wrong is
-- found without what was put off.
CREATE INDEX IF NOT EXISTS ledger_attempts_lost ON ledger_attempts (kind, finished_at) WHERE outcome IN (6, 7);
