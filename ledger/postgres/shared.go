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
	return d.read(ctx, func(ss session) error { return fn(alike{ss}) })
}

// Soon is Read: the pool has several connections, so a long reading does not hold up a short one.
func (d sharedDB) Soon(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.Read(ctx, fn)
}

func (d sharedDB) Write(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.write(ctx, func(ss session) error { return fn(alike{ss}) })
}

// alike is a session as a sqlstore.Session.
type alike struct{ session }

// Query implements sqlstore.Session.
func (a alike) Query(statement string, args, dest []any, each func() error) error {
	return a.query(statement, args, into(dest, each))
}

// Later implements sqlstore.Session.
func (a alike) Later(statement string, args, dest []any, each func() error) error {
	return a.later(statement, args, into(dest, each))
}

// into makes a row function that reads a row into dest and calls each.
func into(dest []any, each func() error) func(scanner) error {
	if each == nil {
		return nil
	}
	p := placesOf(dest...)
	return func(scan scanner) error {
		if err := p.scan(scan); err != nil {
			return err
		}
		return each()
	}
}

// places are what rows are read into, row after row. NULL becomes the zero value, and times are in UTC.
type places struct {
	dest   []any    // what the driver scans into
	settle []func() // called after each row
}

func placesOf(dest ...any) *places { return new(places).add(dest...) }

// direct adds places of columns that are never NULL. They cost less.
func (p *places) direct(dest ...any) *places {
	p.dest = append(p.dest, dest...)
	return p
}

func (p *places) add(dest ...any) *places {
	for _, d := range dest {
		switch d := d.(type) {
		case *int64:
			nullable(p, d)
		case *int:
			nullable(p, d)
		case *int16:
			nullable(p, d)
		case *bool:
			nullable(p, d)
		case *string:
			nullable(p, d)
		case *uuid.UUID:
			nullable(p, d)
		case *time.Time:
			nullable(p, d)
			p.settle = append(p.settle, func() { *d = d.UTC() })
		default:
			p.dest = append(p.dest, d)
		}
	}
	return p
}

func nullable[T any](p *places, to *T) {
	var value *T
	p.dest = append(p.dest, &value)
	p.settle = append(p.settle, func() {
		if *to = *new(T); value != nil {
			*to = *value
		}
	})
}

func (p *places) scan(scan scanner) error {
	if err := scan(p.dest...); err != nil {
		return err
	}
	for _, settle := range p.settle {
		settle()
	}
	return nil
}
