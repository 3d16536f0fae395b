-- +goose Up
-- The checksum of what identifies an item, and of its payload; see Identity.Checksum in package ledger. NULL: the item
-- was added before this migration. A program that changes a payload must write it, so older programs cannot go on.
ALTER TABLE ledger_items ADD COLUMN checksum INTEGER;
UPDATE ledger_meta SET v = '19' WHERE k = 'compatible_from';
