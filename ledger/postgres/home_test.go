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
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/postgres"
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

// standbys names the standbys for which commits wait.
func (m *moves) standbys(names string) {
	m.t.Helper()
	execute(m.t, m.server.URL(), "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
	m.query("SELECT pg_reload_conf()::text")
	for began := time.Now(); m.query("SHOW synchronous_standby_names") != names; {
		if time.Since(began) > time.Minute {
			m.t.Fatal("the setting is not read")
		}
	}
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

// A standby that lags is promoted under a worker: it gives no number there, and no program works the ledger until it is
// known what became of it.
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
	must.OK(t, m.server.Crash())
	must.OK(t, errors.Join(os.RemoveAll(data), os.Rename(copied, data)))
	m.asStandby(data)

	for what, call := range map[string]func() error{
		"claim": func() error { _, err := before.Claim(ctx, claim); return err },
		"add":   func() error { _, err := before.Add(ctx, item("c")); return err },
		"open":  func() error { _, err := m.open(postgres.Options{}); return err },
	} {
		if err := m.reached(call); !errors.Is(err, ledger.ErrSchema) ||
			!strings.Contains(err.Error(), "is on timeline 2 of") || !strings.Contains(err.Error(), "was on timeline 1 of") {
			t.Errorf("%s: %v", what, err)
		}
	}
	operator, err := m.open(postgres.Options{Moved: true})
	must.OK(t, err)
	done, _, err := operator.Restored(ctx, "operator:me")
	must.OK(t, err)
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
	if _, err := m.open(postgres.Options{}); !errors.Is(err, ledger.ErrSchema) {
		t.Error(err)
	}
	operator, err = m.open(postgres.Options{Moved: true})
	must.OK(t, err)
	if home, err := operator.Moved(ctx, "operator:me"); err != nil || !strings.HasPrefix(home, "timeline 3 of") {
		t.Error(home, err)
	}
	worker := m.mustOpen()
	if err := worker.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0]; err != nil {
		t.Error(err)
	}
	m.followed(worker, data)
}

// followed: where commits waited for the standby that is promoted, work goes on there, and only there.
func (m *moves) followed(worker *ledger.Ledger, data string) {
	ctx := m.t.Context()
	m.query("UPDATE ledger_meta SET v = 'yes' WHERE k = 'commits_wait' RETURNING v")
	m.mustOpen() // its commits do not wait
	if said := m.query("SELECT v FROM ledger_meta WHERE k = 'commits_wait'"); said != "no" {
		m.t.Errorf("commits wait: %s", said)
	}
	m.query("UPDATE ledger_meta SET v = 'yes' WHERE k = 'commits_wait' RETURNING v")
	m.standbys("x") // which is not there: nothing is committed until it is gone
	waiting := m.mustOpen()
	store := m.store
	m.standbys("")
	must.OK(m.t, m.server.Stop())
	m.asStandby(data)
	add := func(l *ledger.Ledger) func() error {
		return func() error { _, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "z"}); return err }
	}
	if err := m.reached(add(worker)); !errors.Is(err, ledger.ErrSchema) { // it was opened while no commit waited
		m.t.Error(err)
	}
	if err := m.reached(add(waiting)); err != nil {
		m.t.Error(err)
	}
	if _, err := m.open(postgres.Options{}); !errors.Is(err, ledger.ErrSchema) { // it cannot know what was written before
		m.t.Error(err)
	}
	if s, err := store.Schema(ctx); err != nil || s.Fits() != nil { // the look of who waited
		m.t.Error(s, err)
	}
	follower := m.mustOpen()
	if err := m.reached(add(follower)); err != nil {
		m.t.Error(err)
	}
	journal, err := follower.Journal(ctx, ledger.JournalQuery{Action: "moved", Limit: 1})
	home := m.query("SELECT v FROM ledger_meta WHERE k = 'home'")
	if err != nil || len(journal) != 1 || !strings.HasSuffix(journal[0].Detail, home) {
		m.t.Errorf("%+v, %v", journal, err)
	}
	if said := m.query("SELECT v FROM ledger_meta WHERE k = 'commits_wait'"); said != "no" {
		m.t.Errorf("commits wait on the new primary: %s", said)
	}
}

// reached repeats a call until the ledger is available: connections of before are broken.
func (m *moves) reached(call func() error) (err error) {
	for began := time.Now(); time.Since(began) < time.Minute; {
		if err = call(); !errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
	}
	return err
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
	_, err = postgres.Connect(t.Context(), target, postgres.Options{})
	if e, ok := errors.AsType[*ledger.Error](err); !ok || !errors.Is(err, ledger.ErrSchema) || e.Act.Name != "restored" {
		t.Error(err)
	}
}

// A role that may neither record where the ledger is nor learn it works the ledger as before.
func TestHomeless(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), pgtest.Start(t, pgtest.Options{})
	owner, err := postgres.Connect(ctx, server.URL(), postgres.Options{})
	must.OK(t, err)
	must.OK(t, owner.Close())
	home := func() finding.Finding {
		all, _ := postgres.Examine(ctx, server.URL(), postgres.Options{})
		for _, f := range all {
			if f.Check == "home" {
				return f
			}
		}
		return finding.Finding{}
	}
	if f := home(); f.Level != finding.LevelOK || !strings.HasPrefix(f.What, "timeline 1 of") {
		t.Errorf("%+v", f)
	}
	execute(t, server.URL(), "DELETE FROM ledger_meta WHERE k = 'home'")
	if f := home(); f.Level != finding.LevelWarning || f.Act.Name != act.Moved {
		t.Errorf("%+v", f)
	}
	execute(t, server.URL(), "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	execute(t, server.URL(), "CREATE ROLE worker LOGIN")
	for _, statement := range postgres.Grants("", "worker") {
		execute(t, server.URL(), statement)
	}
	as := strings.Replace(server.SocketURL(), cluster.User, "worker", 1)
	s, err := postgres.Connect(ctx, as, postgres.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: "a"}))
	if schema, err := s.Schema(ctx); err != nil || schema.Home != "" || schema.Recorded != "" {
		t.Error(schema, err)
	}
	all, _ := postgres.Examine(ctx, as, postgres.Options{})
	if !slices.ContainsFunc(all, func(f finding.Finding) bool {
		return f.Check == "home" && strings.HasPrefix(f.What, "this user may not")
	}) {
		t.Errorf("%+v", all)
	}
}
