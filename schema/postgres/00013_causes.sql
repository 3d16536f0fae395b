-- +goose Up
-- What failures of other items have in common with this one; see package cause. NULL: it did not fail, or was recorded
-- by a program that does not know causes.
ALTER TABLE ledger_attempts ADD COLUMN cause text COLLATE "C" CHECK (octet_length(cause) = 12);
