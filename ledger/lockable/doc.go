// Package lockable shares the rows of a table of your own between agents: each claims a few, works
// on them, and finishes them or lets them expire. No ledger is involved: the table gets two columns,
// locked_by and expires_at, and everything else about it stays yours.
//
// A row is free when locked_by is NULL, held while expires_at lies ahead, and anybody's again after
// that. Only the database's clock decides. An agent that claims again gets its own rows first, with their
// time extended, so that an editor who reloads the page, or a crawler that was started anew, goes on
// where they were.
//
// Expiry alone takes nothing away: an agent that is late may still finish a row that no other agent has
// claimed. With a third column, lock_id, every claim has a token. So an agent can tell a row that it has lost and got
// again from a row that it has never lost.
//
// Its cost. A claim looks at the rows that are held and at the expired ones by an index on
// expires_at, and at free ones in the order that was asked for; on Postgres it skips rows that others
// have locked and never waits. On a large table these indexes keep it to the rows that it is about:
//
//	CREATE INDEX ON article (expires_at);
//	CREATE INDEX ON article (date_imported DESC) WHERE locked_by IS NULL AND reviewed = false;
//
// and where thousands of rows are held at a time, one on locked_by. Of more than 1,000 expired rows those
// that expired longest ago are claimed first, whatever the order.
//
// A row that is locked_by somebody without an expires_at is left alone by all. A claim cannot
// stop a statement that does not ask: an UPDATE of the table by another program.
package lockable
