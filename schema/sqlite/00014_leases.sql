-- +goose Up
-- On Postgres a claim is one row from here on. Here the row of an item keeps its lease: an index without the state is
-- slower on SQLite.
SELECT 1;
