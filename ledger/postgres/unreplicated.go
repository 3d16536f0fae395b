package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres ends the wait of a commit for its synchronous standby when the call is cancelled. It then reports the commit
// as done, with a warning. All sessions of this server see the commit, but a standby that is promoted may lack it. So
// the end of such a call is not known, and the call has to be repeated. The repetition finds its change done, and has
// locked the row of the item. A lock is in the log as well, so the commit of the repetition waits until the standby has
// everything from before.

// unreplicatedMark is set in a session whose commit did not wait for its standby.
const unreplicatedMark = "ledgerd unreplicated"

var errUnreplicated = errors.New("the commit did not wait for its standby, because it was cancelled")

// noteUnreplicated makes the sessions of a config remember that a commit did not wait. The warning is recognised by the
// name of the server's function, since its text is translated.
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
