-- +goose Up
-- The W3C trace context in which the item was added; see package tracing. NULL: none, or the item was added by a
-- program that does not know of it.
ALTER TABLE ledger_items ADD COLUMN trace TEXT CHECK (length(trace) <= 568);
