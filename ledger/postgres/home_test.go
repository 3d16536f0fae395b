package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

// moves is a server that is promoted now and then.
type moves struct {
	t      *testing.T
	server *cluster.Cluster
	store  *postgres.Store // that was opened last
}

func (m *moves) open(o postgres.Options) (*ledger.Ledger, error) {
	s, err := postgres.Connect(m.t.Context(), m.server.URL(), o)
	if err != nil {
		return nil, err
	}
	m.store = s
	l := ledger.New(s, ledger.Options{})
	m.t.Cleanup(func() { must.OK(m.t, l.Close()) })
	return l, nil
}

func (m *moves) mustOpen() *ledger.Ledger {
	m.t.Helper()
	l, err := m.open(postgres.Options{})
	must.OK(m.t, err)
	return l
}

// query runs a statement that returns a text.
func (m *moves) query(statement string) (text string) {
	m.t.Helper()
	conn, err := pgx.Connect(m.t.Context(), m.server.URL())
	must.OK(m.t, err)
	defer conn.Close(context.WithoutCancel(m.t.Context()))
	must.OK(m.t, conn.QueryRow(m.t.Context(), statement).Scan(&text))
	return text
}

// asStandby makes what is in a data folder a standby at the address of the server, and promotes it.
func (m *moves) asStandby(data string) {
	m.t.Helper()
	must.OK(m.t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644))
	must.OK(m.t, m.server.StartAgain())
	if m.query("SELECT pg_promote(true, 60)::text") != "true" {
		m.t.Fatal("the standby was not promoted in time")
	}
}

// A standby that lags is promoted: doctor reports it, and once the ledger is restored no number is given out again.
func TestPromotedStandby(t *testing.T) {
	t.Parallel()
	m := &moves{t: t, server: pgtest.Start(t, pgtest.Options{})}
	ctx, claim := t.Context(), ledger.Claim{Kind: "k", Agent: "me", Limit: 1}
	item := func(key string) ledger.NewItem { return ledger.NewItem{Kind: "k", Key: key} }
	before := m.mustOpen()
	must.Do(t)(before.Add(ctx, item("a")))
	data := m.query("SHOW data_directory")
	must.OK(t, m.server.Stop())
	copied := data + ".standby"
	must.OK(t, exec.CommandContext(ctx, "cp", "-a", data, copied).Run())
	must.OK(t, m.server.StartAgain())
	lost, err := before.Claim(ctx, claim) // is acknowledged, and not on the standby
	if err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	added, err := before.Add(ctx, item("b"))
	must.OK(t, err)
	if f := m.home(); f.Level != finding.LevelOK || !strings.HasPrefix(f.What, "timeline 1 of") {
		t.Errorf("%+v", f)
	}
	must.OK(t, m.server.Crash())
	must.OK(t, errors.Join(os.RemoveAll(data), os.Rename(copied, data)))
	m.asStandby(data)
	if f := m.home(); f.Level != finding.LevelProblem || f.Act.Name != act.Restored ||
		!strings.Contains(f.What, "is on timeline 2 of") || !strings.Contains(f.What, "was on timeline 1 of") {
		t.Errorf("%+v", f)
	}

	operator := m.mustOpen()
	done, _, err := operator.Restored(ctx, "operator:me")
	must.OK(t, err)
	if f := m.home(); f.Level != finding.LevelOK {
		t.Errorf("%+v", f)
	}
	attempts, ids := done.Above()
	after := m.mustOpen()
	leases, err := after.Claim(ctx, claim)
	if err != nil || len(leases) != 1 || leases[0].ID != lost[0].ID || leases[0].Attempt != attempts+1 {
		t.Errorf("%+v, %v", leases, err)
	}
	again, err := after.Add(ctx, item("b"))
	if must.OK(t, err); again[0].ID <= ids || again[0].ID == added[0].ID {
		t.Errorf("id %d after %d", again[0].ID, added[0].ID)
	}
	late := after.Finish(ctx, ledger.Ending{Lease: lost[0], Result: ledger.Done(nil)})[0]
	if !errors.Is(late, ledger.ErrLeaseLost) {
		t.Error(late)
	}

	must.OK(t, m.server.Stop()) // nothing is missing on the next timeline
	m.asStandby(data)
	operator = m.mustOpen()
	if home, err := operator.Moved(ctx, "operator:me"); err != nil || !strings.HasPrefix(home, "timeline 3 of") {
		t.Error(home, err)
	}
	if err := operator.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0]; err != nil {
		t.Error(err)
	}
}

// home is what doctor finds about where the ledger is.
func (m *moves) home() finding.Finding {
	all, _ := postgres.Examine(m.t.Context(), m.server.URL(), postgres.Options{})
	for _, f := range all {
		if f.Check == "home" {
			return f
		}
	}
	return finding.Finding{}
}

// A lease that is being renewed while the ledger is restored ends, too.
func TestRenewedWhileRestored(t *testing.T) {
	t.Parallel()
	target := pgtest.Database(t)
	s, err := postgres.Connect(t.Context(), target, postgres.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a"}))
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "me", Limit: 1})
	must.OK(t, err)
	conn, err := pgx.Connect(t.Context(), target)
	must.OK(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	renewal, err := conn.Begin(t.Context())
	must.OK(t, err)
	must.Do(t)(renewal.Exec(t.Context(), "UPDATE ledger_leases SET expires_at = expires_at + interval '1 minute'"))
	ended := make(chan int64, 1)
	go func() {
		_, lost, err := l.Restored(t.Context(), "operator:me")
		if err != nil {
			t.Error(err)
		}
		ended <- lost
	}()
	waits := "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ledger_leases'::regclass"
	for n := 0; n == 0; {
		must.OK(t, conn.QueryRow(t.Context(), waits).Scan(&n))
	}
	must.OK(t, renewal.Commit(t.Context()))
	if n := <-ended; n != 1 {
		t.Errorf("%d leases ended", n)
	}
	if err := l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0]; !errors.Is(err,
		ledger.ErrLeaseLost) {
		t.Error(err)
	}
}

// A dump that was restored has other tables, so it is noticed where it was restored, too.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	target := pgtest.Database(t)
	s, err := postgres.Connect(t.Context(), target, postgres.Options{})
	must.OK(t, err)
	must.OK(t, s.Close())
	execute(t, target, "ALTER TABLE ledger_meta RENAME TO old")
	execute(t, target, "CREATE TABLE ledger_meta (LIKE old INCLUDING ALL)")
	execute(t, target, "INSERT INTO ledger_meta SELECT * FROM old")
	all, _ := postgres.Examine(t.Context(), target, postgres.Options{})
	if !slices.ContainsFunc(all, func(f finding.Finding) bool { return f.Check == "home" && f.Act.Name == act.Restored }) {
		t.Errorf("%+v", all)
	}
}

// A role that may neither record where the ledger is nor learn it works the ledger as before.
func TestHomeless(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), pgtest.Start(t, pgtest.Options{})
	owner, err := postgres.Connect(ctx, server.URL(), postgres.Options{})
	must.OK(t, err)
	must.OK(t, owner.Close())
	m := &moves{t: t, server: server}
	if f := m.home(); f.Level != finding.LevelOK || !strings.HasPrefix(f.What, "timeline 1 of") {
		t.Errorf("%+v", f)
	}
	execute(t, server.URL(), "DELETE FROM ledger_meta WHERE k = 'home'")
	if f := m.home(); f.Level != finding.LevelWarning || f.Act.Name != act.Moved {
		t.Errorf("%+v", f)
	}
	execute(t, server.URL(), "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	execute(t, server.URL(), "CREATE ROLE worker LOGIN")
	for _, statement := range postgres.Grants("", "worker", schema.Operator) {
		execute(t, server.URL(), statement)
	}
	as := strings.Replace(server.SocketURL(), cluster.User, "worker", 1)
	s, err := postgres.Connect(ctx, as, postgres.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: "a"}))
	if home, err := s.Home(ctx); err != nil || home != "" {
		t.Error(home, err)
	}
	all, _ := postgres.Examine(ctx, as, postgres.Options{})
	if !slices.ContainsFunc(all, func(f finding.Finding) bool {
		return f.Check == "home" && strings.HasPrefix(f.What, "it cannot be learnt")
	}) {
		t.Errorf("%+v", all)
	}
}
