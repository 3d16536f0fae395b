package sqlite

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// The methods that both databases' stores have in common.
type (
	shared   = sqlstore.Store
	sharedTx = sqlstore.Tx
)

// sharedSession is a session as a sqlstore.Session.
type sharedSession struct {
	session
	now time.Time
}

func (s *Store) sharedSession(in session) sharedSession { return sharedSession{in, s.clock()} }

// sharedDB implements sqlstore.DB for a store.
type sharedDB struct{ *Store }

func (d sharedDB) Read(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.read(ctx, true, func(r session) error { return fn(d.sharedSession(r)) })
}

func (d sharedDB) Soon(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.readBy(ctx, d.probes, true, func(r session) error { return fn(d.sharedSession(r)) })
}

func (d sharedDB) Write(ctx context.Context, fn func(sqlstore.Session) error) error {
	return d.write(ctx, false, func(t *turn) error { return fn(sharedSession{t, t.now}) })
}

// translations has the statements of package sqlstore as SQLite takes them.
var translations sync.Map

// Query implements sqlstore.Session. The time is the last argument.
func (s sharedSession) Query(statement string, args, dest []any, each func() error) error {
	query, ok := translations.Load(statement)
	if !ok {
		query = strings.ReplaceAll(sqlstore.ForSQLite(statement), "{{NOW}}", fmt.Sprintf("?%d", len(args)+1))
		translations.Store(statement, query)
	}
	values := make([]any, len(args), len(args)+1)
	for i, v := range args {
		switch v := v.(type) {
		case time.Duration:
			values[i] = v.Microseconds()
		case time.Time: // also the zero time
			values[i] = v.UnixMicro()
		case []string:
			values[i] = array(v)
		case []int64:
			values[i] = array(v)
		default:
			values[i] = v
		}
	}
	if strings.Contains(statement, "{{NOW}}") {
		values = append(values, s.now)
	}
	if each == nil {
		_, err := s.exec(query.(string), values...)
		return err
	}
	return s.query(query.(string), func(r row) error {
		r.scan(dest)
		return each()
	}, values...)
}

// Later implements sqlstore.Session. SQLite gains nothing from running a statement later.
func (s sharedSession) Later(statement string, args, dest []any, each func() error) error {
	return s.Query(statement, args, dest, each)
}

// lazy is the session of a transaction that takes its turn only when needed.
type lazy struct{ *tx }

func (l lazy) Query(statement string, args, dest []any, each func() error) error {
	if err := l.begin(); err != nil {
		return err
	}
	return sharedSession{l.session, l.now}.Query(statement, args, dest, each)
}

func (l lazy) Later(statement string, args, dest []any, each func() error) error {
	return l.Query(statement, args, dest, each)
}

// scan reads the row into dest.
func (r row) scan(dest []any) {
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			*d = r.int(i)
		case *int:
			*d = int(r.int(i))
		case *int16:
			*d = int16(r.int(i))
		case *bool:
			*d = r.bool(i)
		case *string:
			*d = r.text(i)
		case *[]byte:
			*d = r.bytes(i)
		case *time.Time:
			*d = r.time(i)
		case *uuid.UUID:
			*d = r.uuid(i)
		default:
			panic(fmt.Sprintf("sqlite: a target of type %T", d))
		}
	}
}
