package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must.OK(t, err)
	defer conn.Close(t.Context())
	must.Do(t)(conn.Exec(t.Context(), sql))
}

// with changes a URL.
func with(t *testing.T, base string, edit func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(base)
	must.OK(t, err)
	edit(u)
	return u.String()
}

const secret = "geheim-0815"

func TestConnectErrors(t *testing.T) {
	ctx := t.Context()
	good := pgtest.Database(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	free := listener.Addr().String()
	listener.Close()
	for name, c := range map[string]struct {
		url     string
		opt     postgres.Options
		class   error
		message []string
	}{
		"wrong password": {with(t, good, func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }),
			postgres.Options{}, ledger.ErrDenied, []string{"postgres://nobody@127.0.0.1", "password"}},
		"unreachable": {with(t, good, func(u *url.URL) { u.Host, u.User = free, url.UserPassword("app", secret) }),
			postgres.Options{}, ledger.ErrUnavailable,
			[]string{"cannot reach the ledger postgres://app@" + free, "connection refused", "is Postgres running"}},
		"no such database": {with(t, good, func(u *url.URL) { u.Path = "/nothing" }), postgres.Options{}, ledger.ErrInvalid,
			[]string{"/nothing", "createdb"}},
		"no ledger": {good, postgres.Options{MustExist: true}, ledger.ErrNoLedger, []string{"no ledger in postgres://",
			"make one"}},
		"no port": {"postgres://app:" + secret + "@h:x/work", postgres.Options{}, ledger.ErrInvalid,
			[]string{"not a Postgres URL"}},
		"broken password": {"postgres://app:" + secret + "%zz@h/work", postgres.Options{}, ledger.ErrInvalid,
			[]string{"not a Postgres URL", "%XX"}},
		"apostrophe":  {good, postgres.Options{Schema: "it's"}, ledger.ErrInvalid, []string{"apostrophe"}},
		"long schema": {good, postgres.Options{Schema: strings.Repeat("s", 56)}, ledger.ErrInvalid, []string{"at most 55"}},
	} {
		t.Run(name, func(t *testing.T) {
			for what, call := range map[string]func() error{
				"connect": func() error { _, err := postgres.Connect(ctx, c.url, c.opt); return err },
				"migrate": func() error { _, _, err := postgres.Migrate(ctx, c.url, c.opt); return err },
			} {
				err := call()
				if !errors.Is(err, c.class) {
					t.Fatalf("%s: got %v, want %v", what, err, c.class)
				}
				for _, part := range c.message {
					if !strings.Contains(err.Error()+"; "+ledger.Hint(err), part) {
						t.Errorf("%s: %q does not say %q", what, err, part)
					}
				}
				if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
					t.Errorf("%s: the password is in the error", what)
				}
			}
		})
	}
	if have, _, err := postgres.Status(ctx, good, postgres.Options{}); have != 0 || err != nil {
		t.Errorf("refusing made a ledger: %d, %v", have, err)
	}
}

func TestConnectSettings(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", "ledgerd off 10s 8"},
		{"&application_name=mine&pool_max_conns=3&jit=on&idle_in_transaction_session_timeout=7s&description_cache_capacity=0", "mine on 7s 3"},
	} {
		s, err := postgres.Connect(t.Context(), pgtest.URL(t)+c.query, postgres.Options{Schema: pgtest.Schema(t)})
		must.OK(t, err)
		if got := postgres.SessionSettings(t, s); got != c.want {
			t.Errorf("%q gives %q, want %q", c.query, got, c.want)
		}
		s.Close()
	}
}

// Text is UTF-8, also if the database or the role is set to another encoding. A pool of the caller's that uses another
// encoding is refused.
func TestTextIsUTF8(t *testing.T) {
	url := pgtest.Latin1(t)
	s, err := postgres.Connect(t.Context(), url+"&client_encoding=LATIN1", postgres.Options{})
	must.OK(t, err)
	defer s.Close()
	must.Do(t)(ledger.New(s, ledger.Options{}).Add(t.Context(), ledger.NewItem{Kind: "k", Key: "Zoé"}))
	pool, err := pgxpool.New(t.Context(), url)
	must.OK(t, err)
	defer pool.Close()
	var characters int
	err = pool.QueryRow(t.Context(), "SELECT length(key) FROM ledger_items").Scan(&characters)
	if err != nil || characters != 3 {
		t.Errorf("the key has %d characters, want 3; %v", characters, err)
	}
	if _, err := postgres.Open(t.Context(), pool, postgres.Options{}); !errors.Is(err, ledger.ErrInvalid) ||
		!strings.Contains(err.Error(), "use LATIN1") {
		t.Errorf("with a pool of LATIN1: %v", err)
	}
}

// Statements are described once, so a pool has to remember the descriptions.
func TestPoolThatRemembersNothing(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgtest.URL(t)+"&description_cache_capacity=0")
	must.OK(t, err)
	defer pool.Close()
	if _, err := postgres.Open(t.Context(), pool, postgres.Options{}); !errors.Is(err, ledger.ErrInvalid) ||
		!strings.Contains(err.Error(), "description_cache_capacity") {
		t.Error(err)
	}
}

// A claim sees what others have committed before it, whatever isolation the database or the role has by default. A pool
// of the caller's with another one is refused.
func TestIsolation(t *testing.T) {
	url := pgtest.Database(t)
	execute(t, url, `DO $$ BEGIN EXECUTE format(
 'ALTER DATABASE %I SET default_transaction_isolation TO "repeatable read"', current_database()); END $$`)
	s, err := postgres.Connect(t.Context(), url, postgres.Options{})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	items := make([]ledger.NewItem, 300)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	must.Do(t)(l.Add(t.Context(), items...))
	var claimers sync.WaitGroup
	for c := range 4 {
		claimers.Go(func() {
			for n := 1; n > 0 && !t.Failed(); {
				got, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: fmt.Sprint(c), Limit: 3})
				var ends []ledger.Ending
				for _, ls := range got {
					ends = append(ends, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})
				}
				if err := errors.Join(append(l.Finish(t.Context(), ends...), err)...); err != nil {
					t.Error(err)
				}
				n = len(got)
			}
		})
	}
	claimers.Wait()
	if n := s.Busy(); n > 0 {
		t.Errorf("%d statements were run again", n)
	}
	pool, err := pgxpool.New(t.Context(), url)
	must.OK(t, err)
	defer pool.Close()
	if _, err := postgres.Open(t.Context(), pool, postgres.Options{}); !errors.Is(err, ledger.ErrInvalid) ||
		!strings.Contains(err.Error(), "repeatable read") {
		t.Errorf("with a pool of repeatable read: %v", err)
	}
}

// Many processes may open a database that has no ledger yet, at the same time.
func TestOpenAtOnce(t *testing.T) {
	for _, name := range []string{"public", `odd "name"`} { // one is there, one has to be made
		target := pgtest.Database(t)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				s, err := postgres.Connect(t.Context(), target+"&pool_max_conns=4", postgres.Options{Schema: name,
					Migrate: i%2 == 0})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if _, err := ledger.New(s, ledger.Options{}).Add(t.Context(), ledger.NewItem{Kind: "k",
					Key: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s, err := postgres.Connect(t.Context(), target, postgres.Options{Schema: name, MustExist: true})
		must.OK(t, err)
		if n, err := s.Count(t.Context(), ledger.Filter{}); err != nil || n != 5 {
			t.Errorf("%s: %d items, %v", name, n, err)
		}
		s.Close()
	}
}

// TestOpenDuringMigration: a ledger that another process is just making, or bringing up to date, is waited for.
func TestOpenDuringMigration(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Database(t)
	if _, _, err := postgres.Migrate(ctx, target, postgres.Options{Schema: "public"}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, target)
	must.OK(t, err)
	defer conn.Close(ctx)
	migration, err := conn.Begin(ctx)
	must.OK(t, err)
	must.Do(t)(migration.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", postgres.MigrationLock("public")))
	last := fmt.Sprintf("UPDATE %s SET is_applied = $1 WHERE version_id = %d", schema.Table, schema.Version)
	execute(t, target, strings.Replace(last, "$1", "false", 1))
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Connect(ctx, target, postgres.Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	for waits := false; !waits; {
		must.OK(t, migration.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT "+
			"granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))").Scan(
			&waits))
		select {
		case err := <-opened:
			t.Fatalf("it was not waited for: %v", err)
		default:
		}
	}
	must.Do(t)(migration.Exec(ctx, last, true))
	must.OK(t, migration.Commit(ctx))
	must.OK(t, <-opened)
}

func TestStatusAndMigrate(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Database(t)
	o := postgres.Options{Schema: "work"}
	if have, want, err := postgres.Status(ctx, target, o); have != 0 || want != schema.Version || err != nil {
		t.Fatalf("%d of %d, %v", have, want, err)
	}
	if _, _, err := postgres.Migrate(ctx, target, postgres.Options{Schema: "work", MustExist: true}); !errors.Is(err,
		ledger.ErrNoLedger) {
		t.Fatalf("made a ledger, or %v", err)
	}
	if from, to, err := postgres.Migrate(ctx, target, o); from != 0 || to != schema.Version || err != nil {
		t.Fatalf("from %d to %d, %v", from, to, err)
	}
	if from, to, err := postgres.Migrate(ctx, target, o); from != schema.Version || to != schema.Version || err != nil {
		t.Fatalf("again: from %d to %d, %v", from, to, err)
	}
	// A newer program has migrated the ledger, and recorded the oldest program that may go on.
	execute(t, target, "INSERT INTO work.ledger_migrations (version_id, is_applied) VALUES (99, true)")
	s, err := postgres.Connect(ctx, target, o)
	if err != nil {
		t.Fatalf("a newer ledger that this program may use: %v", err)
	}
	defer s.Close()
	execute(t, target, "UPDATE work.ledger_meta SET v = '98' WHERE k = 'compatible_from'")
	if now, err := s.Schema(ctx); now.Have != 99 || now.Compatible != 98 || err != nil ||
		!errors.Is(now.Fits(), ledger.ErrSchema) {
		t.Errorf("of a store that is open: %+v, %v", now, err)
	}
	for _, o := range []postgres.Options{o, {Schema: "work", Migrate: true}, {Schema: "work", MustExist: true}} {
		_, err := postgres.Connect(ctx, target, o)
		if !errors.Is(err, ledger.ErrSchema) {
			t.Fatalf("got %v, want %v", err, ledger.ErrSchema)
		}
		for _, part := range []string{"schema 99", "schema 98 or later", fmt.Sprintf("this one knows %d", schema.Version),
			"upgrade ledgerd"} {
			if !strings.Contains(err.Error()+"; "+ledger.Hint(err), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	if have, _, err := postgres.Status(ctx, target, o); have != 99 || !errors.Is(err, ledger.ErrSchema) {
		t.Errorf("%d, %v", have, err)
	}
	if _, _, err := postgres.Migrate(ctx, target, o); !errors.Is(err, ledger.ErrSchema) {
		t.Errorf("%v", err)
	}
}

// An application's own tables are no business of the ledger's, under any names.
func TestForeignTablesStay(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Database(t)
	execute(t, target, `CREATE TABLE items (mine text); INSERT INTO items VALUES ('a');
		CREATE TABLE locks (mine text); INSERT INTO locks VALUES ('b');
		CREATE TABLE goose_db_version (mine text); INSERT INTO goose_db_version VALUES ('c');
		CREATE SCHEMA other; CREATE TABLE other.ledger_items (mine text); INSERT INTO other.ledger_items VALUES ('d');`)
	// Their search_path is none of ours either.
	s, err := postgres.Connect(ctx, target+"&search_path=other", postgres.Options{})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: "x"}))
	ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(ls) != 1 {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	must.OK(t, l.Finish(ctx, ledger.Ending{Lease: ls[0], Result: ledger.Done(nil)})[0])
	pool, err := pgxpool.New(ctx, target)
	must.OK(t, err)
	defer pool.Close()
	var got []string
	for _, table := range []string{"public.items", "public.locks", "public.goose_db_version", "other.ledger_items"} {
		rows, err := pool.Query(ctx, "SELECT mine FROM "+table)
		must.OK(t, err)
		values, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must.OK(t, err)
		got = append(got, values...)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, got); diff != "" {
		t.Error(diff)
	}
}
