package remote

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// TestFirewall: a firewall refuses the end of one item because of its content. This item has failed, without what the
// firewall may not like. The worker goes on, and the ends of the same call are recorded.
func TestFirewall(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		r := newRig(t, everything)
		r.add(6)
		server := r.http.client.Transport
		r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
			if q.Body == nil {
				return server.RoundTrip(q)
			}
			text, err := io.ReadAll(q.Body)
			r.ok(err)
			if bytes.Contains(text, []byte("UNION SELECT")) {
				return page(http.StatusForbidden), nil
			}
			q.Body = io.NopCloser(bytes.NewReader(text))
			return server.RoundTrip(q)
		})
		w, err := worker.New(worker.Config{Ledger: r.http, Concurrency: concurrency, Logger: slog.New(slog.DiscardHandler),
			Handlers: map[string]worker.Handler{"page": worker.Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
				res := ledger.Done([]byte(ls.Key))
				if ls.ID == 2 {
					res.Output, res.Log = []byte(`"UNION SELECT"`), "UNION SELECT"
				}
				return res
			})}})
		r.ok(err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		must.Do(t)(w.Drain(ctx, 0))
		cancel()
		all, err := all(r.l.Walk(t.Context(), &ledger.Walk{}))
		r.ok(err)
		for _, it := range all {
			if it.ID == 2 {
				if it.State != ledger.StateDead || it.Code != worker.CodeInvalid || !strings.Contains(it.Error, "a firewall") {
					t.Errorf("the item whose end is refused is %s: %s, %s", it.State, it.Code, it.Error)
				}
			} else if it.State != ledger.StateDone || it.Attempt != 1 {
				t.Errorf("item %d is %s in attempt %d", it.ID, it.State, it.Attempt)
			}
		}
	}
}
