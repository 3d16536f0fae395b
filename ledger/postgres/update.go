package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

// Update implements ledger.Store.
func (s *Store) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	if conn != nil {
		return s.updateIn(ctx, conn, fn)
	}
	wary := false // a key was not new
	return s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		o := newOwn(ctx, s, c)
		t := newTx(s, o)
		t.trust = !wary
		err := t.told(fn(t))
		if err != nil {
			wary = wary || errors.As(err, new(keyNotNew))
			o.rollback()
			t.end(false)
			return uncommitted(err)
		}
		if err := o.commit(); err != nil {
			t.end(false)
			return err
		}
		t.end(true)
		return nil
	})
}

// updateIn runs fn in the caller's transaction.
func (s *Store) updateIn(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	return s.in(ctx, conn, func(g session) error {
		t := newTx(s, g)
		err := t.told(fn(t))
		if err == nil {
			err = t.tellInTx()
		}
		t.end(false) // whether it commits is not known here
		return err
	})
}

// in calls fn with a session in the caller's transaction.
func (s *Store) in(ctx context.Context, conn ledger.Conn, fn func(session) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	c, ok := conn.(callers)
	if !ok {
		return fmt.Errorf("%w: a connection of %s for a ledger in Postgres: make it with postgres.Wrap or postgres.WrapSQL",
			ledger.ErrInvalid, conn.Dialect())
	}
	if c.none() {
		return &ledger.InvalidError{Field: "tx", Reason: "is nil", Hint: "begin one first"}
	}
	g := &guest{ctx: ctx, s: s}
	g.conn = c.inTx(g)
	switch err = fn(g); {
	case readOnly(err) && g.primary:
		return &ledger.InvalidError{Field: "tx", Reason: "is read only", Hint: "begin one that may write"}
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return &ledger.Error{Kind: ledger.ErrInvalid, Message: "tx: has ended: " + err.Error(), Hint: "begin another",
			Err: err}
	}
	return explain(ctx, s.name, err)
}

// guest is a session in the caller's transaction.
type guest struct {
	ctx     context.Context
	s       *Store
	conn    ledger.Conn
	primary bool // the server is no standby
}

// site is where a session is: its database, and the id of the ledger there.
type site struct{ database, ledger string }

const readSite = `SELECT current_database(), coalesce((SELECT v FROM {{S}}.ledger_meta WHERE k = 'ledger_id'), ''), pg_is_in_recovery()`

// visit is what check has found a session of the caller to be in.
type visit struct {
	site
	standby bool
}

// check refuses a session that is in no transaction, or not in the database of the ledger. It asks the server once for
// each connection, and again while the connection is wrong. It compares two things, because a ledger and its copy have
// the same id, and two servers may have databases of the same name.
func (g *guest) check(ctx context.Context, c *pgx.Conn) error {
	session := c.PgConn()
	if session.TxStatus() == 'I' {
		return errNoTx
	}
	known := "ledgerd visit of " + g.s.schema
	at, _ := session.CustomData()[known].(visit)
	if at.site != g.s.site {
		err := c.QueryRow(ctx, g.s.render(readSite), pgx.QueryExecModeCacheDescribe).Scan(&at.database, &at.ledger,
			&at.standby)
		switch state := sqlState(err); {
		case state == "42P01" || state == "3F000": // no such table, no such schema
			at = visit{site: site{database: c.Config().Database}}
		case err != nil:
			return err
		}
		session.CustomData()[known] = at
	}
	g.primary = !at.standby
	if at.site == g.s.site {
		return nil
	}
	there := "is in database " + at.database
	switch {
	case at.ledger == "":
		there += fmt.Sprintf(" without a ledger in schema %s", g.s.schema)
	case at.database == g.s.site.database:
		there += " with another ledger"
	}
	return &ledger.InvalidError{Field: "tx", Reason: fmt.Sprintf("%s, the ledger is in %s", there, g.s.name),
		Hint: "begin it in the database of the ledger"}
}

func (g *guest) query(template string, args []any, row func(scanner) error) error {
	rows, err := g.conn.Query(g.ctx, g.s.render(template), args...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

func (g *guest) later(template string, args []any, row func(scanner) error) error {
	return g.query(template, args, row)
}

func (*guest) flush() error { return nil }

const (
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED" // also if the pool's default differs
	commit = "COMMIT"
)

// own is a session in a transaction of ours. The transaction begins with the first statement. Statements that can wait
// are sent together with the next query, or with the commit.
type own struct {
	ctx     context.Context
	s       *Store
	pipe    pipe
	waiting []statement
	size    int // bytes of arguments that wait, roughly
	begun   bool
	failed  error // of a statement: BEGIN may not have been run, so a further statement would commit by itself
}

func newOwn(ctx context.Context, s *Store, conn *pgx.Conn) *own {
	return &own{ctx: ctx, s: s, pipe: pipe{conn, s.prepares(conn), s.described}}
}

// maxWaiting bounds the bytes of arguments that wait: they are in memory twice.
const maxWaiting = 16 << 20

func (o *own) later(template string, args []any, row func(scanner) error) error {
	if o.failed != nil {
		return o.failed
	}
	if !o.begun {
		o.begun = true
		o.waiting = append(o.waiting, statement{sql: begin})
	}
	o.waiting = append(o.waiting, statement{o.s.render(template), args, row})
	o.size += argsSize(args)
	if o.size > maxWaiting {
		return o.flush()
	}
	return nil
}

func (o *own) query(template string, args []any, row func(scanner) error) error {
	if err := o.later(template, args, row); err != nil {
		return err
	}
	return o.flush()
}

func (o *own) flush() error {
	if len(o.waiting) == 0 {
		return nil
	}
	waiting := o.waiting
	o.waiting, o.size = nil, 0
	o.failed = o.pipe.run(o.ctx, waiting)
	return o.failed
}

func (o *own) commit() error {
	if !o.begun || o.failed != nil {
		return uncommitted(o.failed)
	}
	o.waiting = append(o.waiting, statement{sql: commit})
	failpoint.Here("postgres.commit")
	err := o.flush()
	failpoint.Here("postgres.committed")
	if err != nil {
		o.rollback()
	}
	return committing(err)
}

// rollback ends a transaction that failed. If it cannot, the pool drops the connection.
func (o *own) rollback() {
	if c := o.pipe.conn; c.PgConn().TxStatus() != 'I' && !c.IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), 5*time.Second)
		defer cancel()
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			_ = c.Close(ctx)
		}
	}
}

// argsSize is roughly the size of arguments in bytes: of the types that may be large.
func argsSize(args []any) (n int) {
	for _, a := range args {
		switch a := a.(type) {
		case [][]byte:
			for _, b := range a {
				n += len(b)
			}
		case []string:
			for _, s := range a {
				n += len(s)
			}
		}
	}
	return n
}
