package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres ends the wait of a commit for its synchronous standby when the call is cancelled. It then reports the commit
// as done, with a warning. All sessions of this server see what was committed, but a standby that is promoted may lack
// it. So such a call has no known end. The next change of the store may find done what was left so. It waits until the
// standby has everything from before.

// unreplicatedMark is set in a session whose commit did not wait for its standby.
const unreplicatedMark = "ledgerd unreplicated"

var errUnreplicated = errors.New("the commit did not wait for its standby, because it was cancelled")

// noteUnreplicated has the sessions of a config remember that a commit did not wait. The texts of the server are
// translated, the name of its function is not.
func noteUnreplicated(c *pgx.ConnConfig) {
	next := c.OnNotice
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" {
			conn.CustomData()[unreplicatedMark] = true
		}
		if next != nil {
			next(conn, n)
		}
	}
}

// unreplicated reports whether a call may have left a commit that did not wait for its standby.
func unreplicated(ctx context.Context, conn *pgconn.PgConn) bool {
	data := conn.CustomData()
	noted := data[unreplicatedMark] != nil
	delete(data, unreplicatedMark)
	return noted || ctx.Err() != nil && conn.IsClosed() // its last messages were not read
}

// replicated ends a change. If an earlier one may have left a commit that did not wait, it waits until the standby has
// that as well. A transaction that writes to the log, if only a message that nothing reads, waits for all that the
// server has written before.
func (s *Store) replicated(ctx context.Context, conn *pgx.Conn) error {
	before := s.behind.Load()
	if _, own := conn.PgConn().CustomData()[unreplicatedMark]; own || before == s.caughtUp.Load() {
		return nil
	}
	_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'ledgerd', '')", pgx.QueryExecModeSimpleProtocol)
	if err == nil && conn.PgConn().CustomData()[unreplicatedMark] == nil {
		s.caughtUp.Store(before)
	}
	return committing(err)
}
