package remote

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/calls"
)

// The server keeps the ledger in order: it makes due items ready, expires leases, and prunes. So these methods do
// nothing, except Expire.

// Promote does nothing here.
func (l *Ledger) Promote(context.Context, int) (next time.Time, err error) { return time.Time{}, nil }

// Expire takes expired leases from their holders.
func (l *Ledger) Expire(ctx context.Context, limit int) (int, error) {
	return look(ctx, l, calls.Expire, calls.ExpireIn{Limit: limit})
}

// ExpireGone does nothing here.
func (l *Ledger) ExpireGone(context.Context) (int, error) { return 0, nil }

// Prune does nothing here.
func (l *Ledger) Prune(context.Context, int) (int, error) { return 0, nil }

// ForgetTallies does nothing here.
func (l *Ledger) ForgetTallies(context.Context) error { return nil }

const (
	hintsSilent = 40 * time.Second // a stream without a line for so long is closed; the server sends one every 15 s
	hintsPause  = 2 * time.Second  // before the next stream
)

// Subscribe sends kinds whose items may have become ready, until ctx ends.
func (l *Ledger) Subscribe(ctx context.Context, c chan<- string) {
	for ctx.Err() == nil {
		if err := l.hear(ctx, c); err != nil && ctx.Err() == nil {
			l.config.Log.Debug("no hints of new items; looking now and then", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(hintsPause):
		}
	}
}

// hear receives one stream of hints and sends their kinds on c, until the stream ends. The server ends each some time;
// that is no error.
func (l *Ledger) hear(ctx context.Context, c chan<- string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(hintsSilent, func() { cancel(errNoAnswer) })
	defer silent.Stop()
	res, err := l.send(ctx, http.MethodGet, calls.Prefix+"hints", nil)
	if err != nil {
		return l.noAnswer(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return l.refused(res, io.LimitReader(res.Body, 1<<20))
	}
	select {
	case c <- "": // hints may have been missed before
	default:
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		silent.Reset(hintsSilent)
		kind := lines.Text()
		if kind == "" {
			continue
		}
		if kind == "*" {
			kind = ""
		}
		select {
		case c <- kind:
		default:
		}
	}
	if err := cmp.Or(context.Cause(ctx), lines.Err()); err != nil {
		return fmt.Errorf("%s: the hints have ended: %w", l.Remote, err)
	}
	return nil
}
