package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/schema"
)

// told is an error with its hint and the name of its act.
func told(err error) string {
	text := err.Error() + "; " + ledger.Hint(err)
	if e, ok := errors.AsType[*ledger.Error](err); ok {
		text += "\n" + string(e.Act.Name)
	}
	return text
}

func TestExplain(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	state := func(code string) error {
		return fmt.Errorf("while: %w", &pgconn.PgError{Code: code, Message: "it said"})
	}
	own := fmt.Errorf("item 7: %w", ledger.ErrNotFound)
	for _, c := range []struct {
		ctx     context.Context
		err     error
		class   error
		message string
	}{
		{t.Context(), state("28P01"), ledger.ErrDenied, "password"},
		{t.Context(), state("28000"), ledger.ErrDenied, "pg_hba.conf"},
		{t.Context(), &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: search_path"},
			ledger.ErrInvalid, "pooler"},
		{t.Context(), &pgconn.PgError{Code: "08P01", Message: "transaction blocks not allowed in statement pooling mode"},
			ledger.ErrInvalid, "set its pool_mode to transaction or session"},
		{t.Context(), state("42501"), ledger.ErrDenied, "see what is missing\nexamine"},
		{t.Context(), state("3D000"), ledger.ErrInvalid, "createdb"},
		{t.Context(), &pgconn.PgError{Code: "42P01", Message: `relation "x.ledger_items" does not exist`}, ledger.ErrNoLedger,
			"make one\nmigrate"},
		{t.Context(), state("42703"), ledger.ErrSchema, "schema"},
		{t.Context(), state("53100"), ledger.ErrUnavailable, "disk is full"},
		{t.Context(), state("53300"), ledger.ErrUnavailable, "max_connections"},
		{t.Context(), state("25006"), ledger.ErrUnavailable, "takes no writes"},
		{t.Context(), state("40001"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), state("40P01"), ledger.ErrUnavailable, "40P01"},
		{t.Context(), state("55P03"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), state("57014"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), state("57P01"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), state("25P03"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), state("25P04"), ledger.ErrUnavailable, "run it again"},
		{t.Context(), committing(state("57P01")), ledger.ErrUnavailable, "may or may not"},
		{t.Context(), committing(state("25P04")), ledger.ErrUnavailable, "may or may not"},
		{t.Context(), committing(io.ErrUnexpectedEOF), ledger.ErrUnavailable, "may or may not"},
		{t.Context(), io.EOF, ledger.ErrUnavailable, "closed the connection"},
		{t.Context(), &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			ledger.ErrUnavailable, "connection refused"},
		{t.Context(), &net.DNSError{Name: "db1", Err: "no such host"}, ledger.ErrUnavailable,
			"cannot find host db1 (no such host)"},
		{t.Context(), own, ledger.ErrNotFound, "item 7: not found"},
		{cancelled, io.EOF, context.Canceled, "ledger-name: context canceled"},
		{cancelled, state("57014"), context.Canceled, "context canceled"},
	} {
		got := explain(c.ctx, "ledger-name", c.err)
		if !errors.Is(got, c.class) || !strings.Contains(told(got), c.message) {
			t.Errorf("%v: got %v, want %v with %q", c.err, got, c.class, c.message)
		}
		if again := explain(c.ctx, "other-name", got); again.Error() != got.Error() && !errors.Is(got, context.Canceled) {
			t.Errorf("explained twice: %v", again)
		}
		var bad *pgconn.PgError
		if errors.As(c.err, &bad) && c.ctx.Err() == nil && !errors.As(got, &bad) {
			t.Errorf("%v: the driver's error is lost", got)
		}
	}
	must.OK(t, explain(t.Context(), "x", nil))
	if err := explain(t.Context(), "x", state("23505")); errors.Is(err, ledger.ErrUnavailable) ||
		!strings.Contains(err.Error(), "x: ") {
		t.Errorf("a mistake of ours: %v", err)
	}
}

func TestUnprepared(t *testing.T) {
	for want, err := range map[bool]error{
		true:  &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery", Message: "in another language"},
		false: &pgconn.PgError{Code: "0A000", Message: "cached plan must not be what a function raises"},
	} {
		if unprepared(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

func TestJudge(t *testing.T) {
	s := &Store{name: "postgres://db/work"}
	for _, c := range []struct {
		c       condition
		o       Options
		migrate bool
		err     error
		message string
	}{
		{condition{}, Options{}, true, nil, ""},
		{condition{}, Options{MustExist: true, Migrate: true}, false, ledger.ErrNoLedger, "no ledger in postgres://db/work"},
		{condition{have: schema.Version, compatible: 1}, Options{}, false, nil, ""},
		{condition{have: schema.Version + 5, compatible: schema.Version}, Options{Migrate: true}, false, nil, ""},
		{condition{have: schema.Version + 5, compatible: schema.Version + 1}, Options{Migrate: true}, false,
			ledger.ErrSchema,
			"upgrade ledgerd"},
		{condition{have: -1, compatible: -1}, Options{}, false, ledger.ErrSchema, // as if it knew one more
			"migrate it\nmigrate"},
		{condition{have: -1, compatible: -1}, Options{Migrate: true}, true, nil, ""},
	} {
		migrate, err := s.judge(c.c, c.o)
		if migrate != c.migrate || !errors.Is(err, c.err) || err != nil &&
			!strings.Contains(told(err), c.message) {
			t.Errorf("%+v with %+v: %v, %v; want %v, %v", c.c, c.o, migrate, err, c.migrate, c.err)
		}
	}
}

func TestLedgerName(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://app:geheim@db1/work?sslmode=disable":                   "postgres://app@db1:5432/work",
		"postgres://app:geheim@[::1]:6000/work":                            "postgres://app@[::1]:6000/work",
		"postgres://app:geheim@/work?host=/run/pg":                         "postgres://app@/work?host=/run/pg",
		"host=db1 user=app password=geheim dbname=work":                    "postgres://app@db1:5432/work",
		"postgres://app:geheim@db1,db2:6000/work?target_session_attrs=any": "postgres://app@db1:5432/work",
	} {
		config, err := poolConfig(url)
		must.OK(t, err)
		if got := ledgerName(config.ConnConfig); got != want {
			t.Errorf("%s is named %s, want %s", url, got, want)
		}
	}
}

func TestPoolConfigPrefersThePrimary(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://app@db1/work":                                 false,
		"postgres://app@db1/work?sslmode=prefer":                  false,
		"postgres://app@db1,db2/work":                             true,
		"postgres://app@db1,db2/work?target_session_attrs=any":    false,
		"postgres://app@db1/work?target_session_attrs=read-write": true,
	} {
		config, err := poolConfig(url)
		must.OK(t, err)
		if got := config.ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
		if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
			t.Errorf("%s has mode %v", url, config.ConnConfig.DefaultQueryExecMode)
		}
	}
}

// The SQL of readings has endless forms, so it is not kept for ever.
func TestRenderedIsBounded(t *testing.T) {
	s := &Store{schema: "x"}
	for n := range 3 * maxRendered {
		s.render(fmt.Sprint("SELECT ", n))
	}
	s.render(strings.Repeat(" ", maxTemplate+1))
	n, long := 0, false
	s.rendered.Range(func(template, _ any) bool {
		n, long = n+1, long || len(template.(string)) > maxTemplate
		return true
	})
	if n == 0 || n > maxRendered || long {
		t.Errorf("%d templates are kept, long ones: %v", n, long)
	}
	if sql := s.render("SELECT {{S}}.t"); sql != "SELECT x.t" {
		t.Error(sql)
	}
}
