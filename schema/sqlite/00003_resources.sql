-- +goose Up
-- Names that an item needs for itself while it is leased: a JSON array, sorted and distinct; NULL: none.
ALTER TABLE ledger_items ADD COLUMN resources TEXT CHECK (octet_length(resources) <= 32768 AND json_array_length(resources) BETWEEN 1 AND 16);

-- backlog.gate: 0 claimed freely; 1 needs one resource; 2 needs several.
ALTER TABLE ledger_backlog ADD COLUMN gate INTEGER NOT NULL DEFAULT 0 CHECK (gate BETWEEN 0 AND 2);
-- The resource for want of which a claim laid it aside: it is not looked at until that is free.
ALTER TABLE ledger_backlog ADD COLUMN blocked_on TEXT CHECK (blocked_on IS NULL OR (state = 1 AND gate > 0 AND octet_length(blocked_on) BETWEEN 1 AND 256));
-- When a claim passed it over for the first time since it became ready.
ALTER TABLE ledger_backlog ADD COLUMN passed_at INTEGER CHECK (passed_at IS NULL OR (state = 1 AND gate > 0));

-- What needs resources never lies in the index of what is claimed freely.
DROP INDEX ledger_backlog_ready;
CREATE INDEX ledger_backlog_ready  ON ledger_backlog (kind, priority, due_at, item_id) WHERE state = 1 AND gate = 0;
CREATE INDEX ledger_backlog_gated  ON ledger_backlog (kind, priority, due_at, item_id) WHERE state = 1 AND gate > 0 AND blocked_on IS NULL;
CREATE INDEX ledger_backlog_parked ON ledger_backlog (blocked_on, kind, priority, due_at, item_id) WHERE blocked_on IS NOT NULL;
CREATE INDEX ledger_backlog_passed ON ledger_backlog (kind, gate, passed_at, item_id) WHERE passed_at IS NOT NULL;

-- Set for good with the first item of the kind that needs resources.
ALTER TABLE ledger_kinds ADD COLUMN gated INTEGER NOT NULL DEFAULT 0 CHECK (gated IN (0, 1));

-- What leased items hold. The primary key is the promise: one holder at a time.
CREATE TABLE ledger_held (
  resource TEXT PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 256),
  item_id  INTEGER NOT NULL,
  lock_id  BLOB NOT NULL CHECK (length(lock_id) = 16),
  since    INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_held_item ON ledger_held (item_id);

-- The one item for which resources are kept free; item 0 is nobody.
CREATE TABLE ledger_reserver (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  item_id INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  until   INTEGER NOT NULL
) STRICT;
INSERT INTO ledger_reserver (one, item_id, kind, until) VALUES (1, 0, '', 0);

-- A program that does not know resources would claim such items without them.
UPDATE ledger_meta SET v = '3' WHERE k = 'compatible_from';
