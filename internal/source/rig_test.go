package source

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a ledger with a way to query its database.
type place struct {
	*ledger.Ledger
	query func(ctx context.Context, text string) (*query.Query, error)
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, p place)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "ledger.db")
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		test(t, place{opened(t, store, err), func(ctx context.Context, text string) (*query.Query, error) {
			return query.SQLite(ctx, path, "test", text)
		}})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		store, err := postgres.Connect(t.Context(), pgtest.URL(t), postgres.Options{Schema: pgtest.Schema(t)})
		test(t, place{opened(t, store, err), func(ctx context.Context, text string) (*query.Query, error) {
			return query.Postgres(ctx, pgtest.URL(t), "test", text)
		}})
	})
}

// inMemory runs a test for which it makes no difference where the ledger is.
func inMemory(t *testing.T, test func(t *testing.T, p place)) {
	t.Parallel()
	test(t, place{Ledger: opened(t, memory.New(memory.Options{}), nil)})
}

func opened(t *testing.T, store ledger.Store, err error) *ledger.Ledger {
	t.Helper()
	must.OK(t, err)
	l := ledger.New(store, ledger.Options{})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// started is a source that is being looked at.
type started struct {
	*Source
	t     *testing.T
	looks chan Look
	stop  func()
}

// start looks at a source of a kind "check".
func (p place) start(t *testing.T, spec config.Source, change ...func(*Config)) *started {
	t.Helper()
	spec.Kind = "check"
	c := Config{Ledger: p.Ledger, Spec: &spec, Template: ledger.NewItem{Kind: spec.Kind},
		Input: ledger.Input{Type: intake.File, Match: []string{"*.csv"}},
		Host:  "here", Agent: "daemon", TTL: bounds.MinTTL, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if spec.Type != "folder" {
		c.Input = ledger.Input{Type: intake.URL}
	}
	s := &started{t: t, looks: make(chan Look)}
	ctx, cancel := context.WithCancel(t.Context())
	c.Observe = func(l Look) {
		select {
		case s.looks <- l:
		case <-ctx.Done():
		}
	}
	for _, f := range change {
		f(&c)
	}
	s.Source = New(c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(s.stop)
	return s
}

const patience = 5 * time.Minute

// look waits for the next look.
func (s *started) look() Look {
	s.t.Helper()
	select {
	case l := <-s.looks:
		return l
	case <-time.After(patience):
		s.t.Fatal("no look")
		return Look{}
	}
}

// until waits for a look for which something holds.
func (s *started) until(what string, holds func(Look) bool) Look {
	s.t.Helper()
	for range 200 {
		if l := s.look(); holds(l) {
			return l
		}
	}
	s.t.Fatalf("%s: not in 200 looks", what)
	return Look{}
}

// states are the keys in the ledger, relative to a folder, and their states.
func (p place) states(t *testing.T, root string) map[string]ledger.State {
	t.Helper()
	all := map[string]ledger.State{}
	for it, err := range p.List(t.Context(), ledger.Filter{}, 0) {
		must.OK(t, err)
		key := it.Key
		if rel, err := filepath.Rel(root, key); err == nil && root != "" {
			key = rel
		}
		all[key] = it.State
	}
	return all
}

// work ends n items. A claim passes over an item that a look holds locked, so it is repeated.
func (p place) work(t *testing.T, n int, res ledger.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n > 0 {
		leases, err := p.Claim(ctx, ledger.Claim{Kind: "check", Agent: "worker", Limit: n})
		must.OK(t, err)
		for _, l := range leases {
			must.OK(t, p.Finish(ctx, ledger.Ending{Lease: l, Result: res})[0])
		}
		n -= len(leases)
	}
}

// write writes a file that was last changed a while ago.
func write(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(path, old, old))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// extend appends to a file and returns the time.
func extend(t *testing.T, path string, at time.Time) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString("piece\n")
		err = errors.Join(err, f.Close(), os.Chtimes(path, at, at))
	}
	must.OK(t, err)
}
