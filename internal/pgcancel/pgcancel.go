// Package pgcancel has calls to Postgres that are given up ask the server to stop what it is at.
package pgcancel

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// Use has connections of a config send a request to cancel when the context of a call ends. The call, and the request,
// may take most after that.
//
// pgx's own handler gives up its request as soon as the call has returned. PgBouncer 1.18, that of Debian 12, ends
// itself when the client of a request leaves before it was served. So here the call waits for its request. If the
// server takes longer than most to serve it, because it is frozen, the request is given up all the same.
func Use(c *pgx.ConnConfig, most time.Duration) {
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &handler{conn: conn, most: most} }
}

// CloseUnused closes a connection on which no call is under way. The connection's own Close would send a request to
// cancel if its context has ended.
func CloseUnused(conn *pgx.Conn) { _ = conn.Close(context.Background()) }

type handler struct {
	conn *pgconn.PgConn
	most time.Duration
	sent chan struct{} // closed when the server has taken the request, or could not be reached
}

// settle is how long a request that was taken may need until it reaches its session, as in pgx's handler.
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
		_ = h.conn.CancelRequest(ctx) // then the call ends at the deadline
		time.Sleep(settle)
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (h *handler) HandleUnwatchAfterCancel() {
	<-h.sent
	_ = h.conn.Conn().SetDeadline(time.Time{})
}
