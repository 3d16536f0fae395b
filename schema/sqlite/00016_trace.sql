-- +goose Up
-- The W3C trace context of who added the item; see package tracing. NULL: there is none, or the item was added by a
-- program that does not know of it.
ALTER TABLE ledger_items ADD COLUMN trace TEXT CHECK (length(trace) <= 568);
