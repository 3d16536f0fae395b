package remote

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a ledger in memory, and the same ledger over HTTP.
type rig struct {
	t    *testing.T
	at   dburl.Remote
	l    *ledger.Ledger
	http *Ledger
}

// newRig serves an empty ledger with a token that has these scopes.
func newRig(t *testing.T, grant access.Grant) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{Logger: quiet})
	token := access.NewToken()
	server := httptest.NewUnstartedServer(nil)
	a := api.New(api.Config{Ledger: l, Guard: access.NewGuard("127.0.0.1:0", nil, []access.Token{{Grant: grant,
		Hash: access.Hash(token)}}, false), Log: quiet, Version: answer.NewVersion(1), Environment: "production"})
	server.Config.Handler = a
	server.Start()
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	at, err := dburl.ParseRemote(server.URL, "test")
	must.OK(t, err)
	r := &rig{t: t, at: at, l: l}
	r.http, err = Open(t.Context(), Config{At: at, Token: token, Environment: "production", Log: quiet})
	must.OK(t, err)
	_, err = Open(t.Context(), Config{At: at, Token: token, Environment: "staging"})
	if !errors.Is(err, ledger.ErrDenied) {
		t.Errorf("opened by a program of staging: %v", err)
	}
	t.Cleanup(func() {
		end()
		running.Wait()
		r.http.Close()
		server.Close()
	})
	return r
}

var everything = access.Grant{Name: "all", Scopes: []access.Scope{access.Admin}}

func (r *rig) ok(err error) {
	r.t.Helper()
	must.OK(r.t, err)
}

// fill makes items of all sorts in a ledger.
func (r *rig) fill() {
	r.t.Helper()
	ctx := r.t.Context()
	r.ok(r.l.SetKind(ctx, "test", ledger.Kind{Name: "page", MaxFailures: 1, Timeout: time.Minute}))
	r.ok(r.l.SetKind(ctx, "test", ledger.Kind{Name: "mail", OnLost: ledger.OnLostDoubt, Paused: true}))
	var items []ledger.NewItem
	for _, key := range []string{"one", "two", "three", "four", "five", "six"} {
		items = append(items, ledger.NewItem{Kind: "page", Key: key, Payload: []byte(`{"of" : "` + key + `"}`)})
	}
	items = append(items, ledger.NewItem{Kind: "page", Key: "raw", Payload: []byte{0xff, 0}, Priority: 2},
		ledger.NewItem{Kind: "mail", Key: "later", Due: time.Now().Add(time.Hour)},
		ledger.NewItem{Kind: "mail", Key: "daily", Every: "day", Zone: "Europe/Berlin", Scope: "s"})
	_, err := r.l.Add(ctx, items...)
	r.ok(err)
	leases, err := r.l.Claim(ctx, ledger.Claim{Kind: "page", Agent: "ann", Limit: 4})
	r.ok(err)
	for _, err := range r.l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done([]byte(`{"n": 1}`))},
		ledger.Ending{Lease: leases[1], Result: ledger.Result{Outcome: ledger.OutcomeFailed, Code: "http_404",
			Error: "gone"}},
		ledger.Ending{Lease: leases[2], Result: ledger.Doubt(context.Canceled)}) {
		r.ok(err)
	}
	_, err = r.l.Cancel(ctx, "operator:ann", ledger.IDs(6))
	r.ok(err)
	r.ok(r.l.Beat(ctx, ledger.Agent{Name: "box/1/a", Host: "box", PID: 1, Kinds: map[string]string{"page": "page@1"}},
		time.Minute))
}

// often makes an item with so many ended attempts.
func (r *rig) often(attempts int) {
	r.t.Helper()
	ctx := r.t.Context()
	must.Do(r.t)(r.l.Add(ctx, ledger.NewItem{Kind: "often", Key: "k"}))
	for range attempts {
		leases, err := r.l.Claim(ctx, ledger.Claim{Kind: "often", Agent: "ann", Limit: 1})
		r.ok(err)
		r.ok(r.l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Release()})[0])
	}
}

// cutting breaks off a part of the calls: before they reach the server, before their answer is back, or, if within is
// above 0, that long after they were sent.
type cutting struct {
	http.RoundTripper
	cut func(path string) (before, after bool, within time.Duration)
}

type cutError struct{}

func (cutError) Error() string { return "the connection was cut" }

// RoundTrip implements http.RoundTripper.
func (c cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	before, after, within := c.cut(r.URL.Path)
	if before {
		return nil, cutError{}
	}
	if within > 0 {
		ctx, cut := context.WithCancelCause(r.Context())
		time.AfterFunc(within, func() { cut(cutError{}) })
		r = r.WithContext(ctx)
	}
	res, err := c.RoundTripper.RoundTrip(r)
	if err == nil && after {
		res.Body.Close()
		return nil, cutError{}
	}
	return res, err
}
