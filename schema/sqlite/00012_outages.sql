-- +goose Up
ALTER TABLE ledger_items ADD COLUMN failing_since INTEGER;
ALTER TABLE ledger_items ADD COLUMN recovered_at INTEGER;
UPDATE ledger_items SET failing_since = f.since FROM (
  SELECT a.item_id, min(a.finished_at) AS since FROM ledger_attempts a
  WHERE a.outcome IN (2, 6, 7, 8)
    AND NOT EXISTS (SELECT 1 FROM ledger_attempts b WHERE b.item_id = a.item_id AND b.attempt > a.attempt AND b.outcome IN (0, 1, 5))
  GROUP BY a.item_id) f
WHERE ledger_items.id = f.item_id;
