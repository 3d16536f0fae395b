package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// A commit whose wait for a synchronous standby is given up is not reported as done: only the primary has it,
// and the standby may be promoted without it. Postgres itself reports it as done, with a warning.
func TestUnreplicatedCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	s, err := postgres.Connect(t.Context(), server.URL(), postgres.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	t.Cleanup(func() { must.OK(t, l.Close()) })
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a"}, ledger.NewItem{Kind: "k", Key: "d"},
		ledger.NewItem{Kind: "more", Key: "a"}, ledger.NewItem{Kind: "later", Key: "a", Due: time.Now().Add(time.Hour)}))
	must.Do(t)(l.Promote(t.Context(), 1)) // tells which kinds there are
	held, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "me", Limit: 1})
	must.OK(t, err)
	end := ledger.Ending{Lease: held[0], Result: ledger.Done(nil)}
	another, err := postgres.Connect(t.Context(), server.URL(), postgres.Options{})
	must.OK(t, err)
	process := ledger.New(another, ledger.Options{})
	t.Cleanup(func() { must.OK(t, process.Close()) })
	admin, err := pgx.Connect(t.Context(), server.URL())
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, admin.Close(context.Background())) })
	must.Do(t)(admin.Exec(t.Context(), "UPDATE ledger_backlog SET due_at = now() WHERE kind = 'later'"))
	set := func(standbys string) {
		t.Helper()
		must.Do(t)(admin.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '"+standbys+"'"))
		must.Do(t)(admin.Exec(t.Context(), "SELECT pg_reload_conf()"))
		for commitWaits(t, server.URL(), admin) != (standbys != "") { // the server has not read the setting yet
		}
	}
	set("absent")
	calls := map[string]func(context.Context) error{
		"add": func(ctx context.Context) error {
			_, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "b"})
			return err
		},
		"finish": func(ctx context.Context) error { return l.Finish(ctx, end)[0] },
		"claim": func(ctx context.Context) error {
			_, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "me", Limit: 1})
			return err
		},
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, given up by the caller: %v", name, err)
		}
		cancel()
	}
	for name, call := range map[string]func() error{
		"add":     func() error { return failed(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "c"})) },
		"claim":   func() error { return failed(l.Claim(t.Context(), ledger.Claim{Kind: "more", Agent: "me", Limit: 1})) },
		"promote": func() error { return failed(l.Promote(t.Context(), 10)) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- call() }()
		for waits := 0; waits == 0 && len(ended) == 0; { // the operator cancels it
			must.OK(t, admin.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep'`).Scan(&waits))
		}
		if err := <-ended; !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s, cancelled by an operator: %v", name, err)
		}
	}
	if n := postgres.Walks(s); n > 0 {
		t.Errorf("%d walks of calls that have ended go on", n)
	}
	// All processes see what is on the primary alone, but none confirms it.
	if _, err := process.Find(t.Context(), "k", "", "c"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if added, err := process.Add(ctx, ledger.NewItem{Kind: "k", Key: "c"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", added, err)
	}
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if err := process.Finish(short, end)[0]; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end again: %v", err)
	}
	set("")
	for _, key := range []string{"b", "c"} { // to repeat it is right
		if added, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}); err != nil ||
			added[0].Verdict != ledger.VerdictKnown {
			t.Errorf("%s: %+v, %v", key, added, err)
		}
	}
	if err := process.Finish(t.Context(), end)[0]; err != nil {
		t.Errorf("the end at last: %v", err)
	}
}

// failed is the error of a call alone.
func failed[T any](_ T, err error) error { return err }

// commitWaits reports whether a commit waits for a standby now.
func commitWaits(t *testing.T, url string, admin *pgx.Conn) bool {
	conn, err := pgx.Connect(t.Context(), url)
	must.OK(t, err)
	ended := make(chan struct{})
	go func() {
		_, _ = conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS probe (); INSERT INTO probe DEFAULT VALUES")
		close(ended)
	}()
	for waits := 0; ; {
		select {
		case <-ended:
			_ = conn.Close(t.Context())
			return waits > 0
		default:
		}
		must.OK(t, admin.QueryRow(t.Context(), `SELECT $1 + count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND pid = $2`, waits, int32(conn.PgConn().PID())).Scan(&waits))
	}
}
