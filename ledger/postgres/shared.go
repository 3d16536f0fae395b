package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// The methods that both databases' stores have in common.
type (
	shared   = sqlstore.Store
	sharedTx = sqlstore.Tx
)

// sharedDB implements sqlstore.DB for a store.
type sharedDB struct{ *Store }

func (d sharedDB) Read(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.read(ctx, func(ss session) error { return fn(sharedSession{ss}) })
}

// Soon is Read. The pool has several connections, so no other read holds it up.
func (d sharedDB) Soon(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.Read(ctx, fn)
}

func (d sharedDB) Write(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.write(ctx, func(ss session) error { return fn(sharedSession{ss}) })
}

// sharedSession is a session as a sqlstore.Session.
type sharedSession struct{ session }

// Query implements sqlstore.Session.
func (s sharedSession) Query(statement string, args, dest []any, each func() error) error {
	return s.query(statement, args, scanInto(dest, each))
}

// Later implements sqlstore.Session.
func (s sharedSession) Later(statement string, args, dest []any, each func() error) error {
	return s.later(statement, args, scanInto(dest, each))
}

// scanInto makes a row function that reads a row into dest and calls each.
func scanInto(dest []any, each func() error) func(scanner) error {
	if each == nil {
		return nil
	}
	targets := targetsOf(dest...)
	return func(scan scanner) error {
		if err := targets.scan(scan); err != nil {
			return err
		}
		return each()
	}
}

// scanTargets are the variables that rows are read into, row after row. NULL becomes the zero value; times are in UTC.
type scanTargets struct {
	dest     []any    // what the driver scans into
	afterRow []func() // called after each row
}

// targetsOf makes targets of columns that may be NULL.
func targetsOf(dest ...any) *scanTargets { return new(scanTargets).add(dest...) }

// addNotNull adds targets of columns that are never NULL. They cost less.
func (t *scanTargets) addNotNull(dest ...any) *scanTargets {
	t.dest = append(t.dest, dest...)
	return t
}

func (t *scanTargets) add(dest ...any) *scanTargets {
	for _, d := range dest {
		switch d := d.(type) {
		case *int64:
			nullable(t, d)
		case *int:
			nullable(t, d)
		case *int16:
			nullable(t, d)
		case *bool:
			nullable(t, d)
		case *string:
			nullable(t, d)
		case *uuid.UUID:
			nullable(t, d)
		case *time.Time:
			nullable(t, d)
			t.afterRow = append(t.afterRow, func() { *d = d.UTC() })
		default:
			t.dest = append(t.dest, d)
		}
	}
	return t
}

func nullable[T any](t *scanTargets, to *T) {
	var value *T
	t.dest = append(t.dest, &value)
	t.afterRow = append(t.afterRow, func() {
		if value != nil {
			*to = *value
		} else {
			*to = *new(T)
		}
	})
}

// scan reads a row.
func (t *scanTargets) scan(scan scanner) error {
	if err := scan(t.dest...); err != nil {
		return err
	}
	for _, fn := range t.afterRow {
		fn()
	}
	return nil
}
