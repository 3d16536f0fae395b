// Package pgcancel cancels queries on the Postgres server when the context of their call ends.
package pgcancel

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// Use makes the connections of a config send a cancel request when the context of a call ends. most bounds how long the
// call and its request may then still take.
//
// The handler of pgx gives up its request as soon as the call has returned. PgBouncer 1.18, of Debian 12, exits if the
// client of a cancel request leaves before the request was served. So here the call waits for its request. If the
// server is frozen and takes longer than most, the request is given up nevertheless.
func Use(c *pgx.ConnConfig, most time.Duration) {
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &handler{conn: conn, most: most} }
}

// CloseUnused closes a connection on which no call is under way. Close with a context that has ended would send a
// cancel request.
func CloseUnused(conn *pgx.Conn) { _ = conn.Close(context.Background()) }

type handler struct {
	conn *pgconn.PgConn
	most time.Duration
	sent chan struct{} // closed settle after the server has taken the request or could not be reached
}

// settle is how long an accepted request may need to reach its session, as in the handler of pgx.
const settle = 100 * time.Millisecond

// HandleCancel implements ctxwatch.Handler.
func (h *handler) HandleCancel(context.Context) {
	deadline := time.Now().Add(h.most)
	_ = h.conn.Conn().SetDeadline(deadline)
	sent := make(chan struct{})
	h.sent = sent
	go func() {
		defer close(sent)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		_ = h.conn.CancelRequest(ctx) // without it, the call ends at the deadline
		time.Sleep(settle)
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (h *handler) HandleUnwatchAfterCancel() {
	<-h.sent
	_ = h.conn.Conn().SetDeadline(time.Time{})
}
