package postgres_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// TestDatabaseAway: a database that is renamed under an open ledger is an outage, as it is renamed during a restore; at
// opening it is a mistake.
func TestDatabaseAway(t *testing.T) {
	ctx, address := t.Context(), pgtest.Database(t)
	u, err := url.Parse(address)
	must.OK(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	s, err := postgres.Connect(ctx, address, postgres.Options{})
	must.OK(t, err)
	defer s.Close()
	l, pool := ledger.New(s, ledger.Options{}), pgtest.Pool(t)
	do := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := pool.Exec(ctx, statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	do("ALTER DATABASE "+name+" ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'",
		"ALTER DATABASE "+name+" RENAME TO "+name+"_away")
	for range 3 { // the first ones meet connections that were ended
		err = l.SetKind(ctx, "test", ledger.Kind{Name: "k"})
		if !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("open: %v", err)
		}
	}
	if !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("open: %v", err)
	}
	if again, err := postgres.Connect(ctx, address, postgres.Options{}); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("opened again: %v, %v", again, err)
	}
	do("ALTER DATABASE "+name+"_away RENAME TO "+name, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")
	if err := l.SetKind(ctx, "test", ledger.Kind{Name: "k"}); err != nil {
		t.Errorf("back: %v", err)
	}
}

// TestRefusedLater: a user that the server refuses under an open ledger is an outage, as when a password is changed or
// pg_hba.conf is edited; at opening it is an error of its own. A new connection takes the user that the program names
// by then.
func TestRefusedLater(t *testing.T) {
	ctx := t.Context()
	role, super, as := newRole(t)
	execute(t, super, "GRANT ALL ON SCHEMA public TO "+role)
	named := as
	s, err := postgres.Connect(ctx, as, postgres.Options{URL: func() (string, error) { return named, nil }})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	execute(t, super, "ALTER ROLE "+role+" NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+
		role+"'")
	for range 3 { // the first ones meet connections that were ended
		if err = l.SetKind(ctx, "test", ledger.Kind{Name: "k"}); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("open: %v", err)
		}
	}
	if !strings.Contains(err.Error(), "not permitted to log in") {
		t.Errorf("open: %v", err)
	}
	if again, err := postgres.Connect(ctx, as, postgres.Options{}); !errors.Is(err, ledger.ErrDenied) {
		t.Errorf("opened again: %v, %v", again, err)
	}
	named = super
	if err := l.SetKind(ctx, "test", ledger.Kind{Name: "k"}); err != nil {
		t.Errorf("as another user: %v", err)
	}
}
