package lockable

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// Limits.
const (
	maxRows    = 1_000           // of one call
	maxRelease = bounds.MaxBatch // of ReleaseExpired
	defaultTTL = time.Hour
	rounds     = 100 // tries of a claim on SQLite, after which it returns nothing: other agents were always faster
)

// Table describes how rows are chosen and marked. Name is required.
type Table struct {
	// Schema and Name of the table. They are quoted, so they are taken as the database has them, capitals
	// too. Without a schema the database looks for the table where it looks for unqualified names.
	Schema, Name string
	// LockedBy is the column for the agent, text or integer; "" means "locked_by".
	LockedBy string
	// ExpiresAt is the column for the end of the claim, a timestamp, or an integer for Unix seconds,
	// told apart by the column's type; "" means "expires_at". On Postgres a timestamp has a time zone;
	// on SQLite it is text in UTC, as SQLite's own functions write it: "2026-11-20 17:00:00.123".
	ExpiresAt string
	// LockID is an optional text or uuid column for a token, new with every claim. With it Extend,
	// Release and Finish refuse a claim that was handed on, even back to the same agent; without it
	// they compare the agent only. A row that the agent still holds keeps its token when it claims again.
	LockID string
	// Where is an SQL condition on the rows, e.g. "reviewed = false". It is the program's own text,
	// never a user's. Each ? outside of '…' and "…", also in a comment, stands for one of Args.
	Where string
	Args  []any
	// OrderBy is SQL, e.g. "date_imported DESC"; "" means by key. Rows that the agent holds come
	// first. An index in this order, best of the free rows alone, keeps claims cheap on large tables.
	OrderBy string
	// TTL is how long a claim lasts, 1 s … 10 years; 0 means one hour.
	TTL time.Duration
	// Logger is told by New if an index on ExpiresAt is missing; nil means slog.Default().
	Logger *slog.Logger
}

// Claimer claims rows as values of R, a struct whose fields carry `db:"column"` tags; the key
// columns carry `db:"column,key"`, several for a composite key. Claiming returns the tagged
// columns. A field for a column that may be NULL is a pointer or a type such as sql.Null. A row with NULL for any other
// field, or in its key, is not claimed. On SQLite, use a string for a time in a key, since drivers and SQLite itself
// write times in different forms.
type Claimer[R any] struct {
	db     ledger.Conn
	inTx   bool
	layout *layout
	plan   *plan
}

// New checks the table against the database once: columns, types, key, and that the condition and the
// order are SQL. A mistake is an error that matches ledger.ErrInvalid; it has a hint.
// Make it at start and keep it; it is safe for concurrent use.
func New[R any](ctx context.Context, db ledger.Conn, t Table) (*Claimer[R], error) {
	l, err := newLayout(reflect.TypeFor[R]())
	if err != nil {
		return nil, err
	}
	t.LockedBy, t.ExpiresAt = cmp.Or(t.LockedBy, "locked_by"), cmp.Or(t.ExpiresAt, "expires_at")
	t.TTL, t.Args = cmp.Or(t.TTL, defaultTTL), slices.Clone(t.Args)
	if t.TTL < bounds.MinTTL || t.TTL > bounds.MaxDelay {
		return nil, invalid("ttl", "%v: must be %v … 10 years", t.TTL, bounds.MinTTL)
	}
	r := &Claimer[R]{db: db, layout: l}
	if r.plan, err = t.check(ctx, db, l); err != nil {
		return nil, fmt.Errorf("lockable: %w", err)
	}
	if err := r.plan.try(ctx, db); err != nil {
		return nil, fmt.Errorf("lockable: %w", err)
	}
	if hint := r.plan.hint(); hint != "" {
		t.Logger = cmp.Or(t.Logger, slog.Default())
		t.Logger.WarnContext(ctx, "lockable: claims and releases look through the whole table; an index makes them cheap",
			"table", t.Name, "sql", hint)
	}
	return r, nil
}

// In binds r to a transaction of the caller: claims and ends take effect with its commit. Until then Postgres keeps the
// rows locked, and other claims skip them. SQLite keeps the whole file locked, and a call fails at once with
// ledger.ErrUnavailable while another writer has the lock.
func (r *Claimer[R]) In(tx ledger.Conn) *Claimer[R] {
	in := *r
	in.db, in.inTx = tx, true
	return &in
}

// Claimed is a row and its claim.
type Claimed[R any] struct {
	Row       R
	LockID    string // "" without a LockID column
	ExpiresAt time.Time
}

// Claim returns up to limit rows (1 … 1,000) for agent, text or an integer: those it holds, extended,
// then free or expired ones, each in the given order. Fewer do not mean that there are no more:
// others may have been at the same rows. An agent that claims twice at the same time may get up to
// limit rows each time.
//
// On Postgres this is one statement. SQLite returns updated rows in no order, so there one statement reads rows, and a
// second one claims those of them that are still free.
func (r *Claimer[R]) Claim(ctx context.Context, agent any, limit int) ([]Claimed[R], error) {
	who, err := agentID(agent, r.plan.byClass)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxRows {
		return nil, invalid("limit", "%d: must be 1 … %d", limit, maxRows)
	}
	token, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	var claimed []Claimed[R]
	err = r.do(ctx, "claim", func() (err error) {
		if r.plan.postgres {
			claimed, err = r.claim(ctx, who, token.String(), limit)
		} else {
			claimed, err = r.pickAndStamp(ctx, who, token.String(), limit)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// claim is Claim on Postgres.
func (r *Claimer[R]) claim(ctx context.Context, agent any, token string, limit int) ([]Claimed[R], error) {
	query, args := r.plan.claimPostgres(agent, token, limit)
	type placed struct {
		Claimed[R]
		place int64
	}
	var got []placed
	err := rows(ctx, r.db, query, args, func(scan func(...any) error) error {
		var p placed
		err := r.scan(scan, &p.Claimed, &p.place)
		got = append(got, p)
		return err
	})
	if len(got) > limit {
		return nil, fmt.Errorf("claimed %d rows, asked for %d: a mistake in package lockable", len(got), limit)
	}
	slices.SortFunc(got, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	claimed := make([]Claimed[R], len(got))
	for i := range got {
		claimed[i] = got[i].Claimed
	}
	return claimed, err
}

// pickAndStamp is Claim on SQLite.
func (r *Claimer[R]) pickAndStamp(ctx context.Context, agent any, token string, limit int) ([]Claimed[R], error) {
	if r.inTx { // takes the write lock first: a transaction that has read may be refused it
		if _, err := r.db.Exec(ctx, fmt.Sprintf("UPDATE %s SET %s WHERE 0", r.plan.name, r.plan.freed())); err != nil {
			return nil, err
		}
	}
	width := len(r.plan.keys)
	for range rounds {
		var keys [][]any
		places := map[string]int{}
		query, args := r.plan.pickSQLite(agent, limit)
		err := rows(ctx, r.db, query, args, func(scan func(...any) error) error {
			key, into := slots(width)
			err := scan(into...)
			places[fmt.Sprintf("%#v", key)] = len(keys)
			keys = append(keys, key)
			return err
		})
		if err != nil || len(keys) == 0 {
			return nil, err
		}
		got := make([]*Claimed[R], len(keys))
		query, args = r.plan.stampSQLite(agent, token, keys)
		err = rows(ctx, r.db, query, args, func(scan func(...any) error) error {
			key, into := slots(width)
			var c Claimed[R]
			err := r.scan(scan, &c, into...)
			got[places[fmt.Sprintf("%#v", key)]] = &c
			return err
		})
		var claimed []Claimed[R]
		for _, c := range got {
			if c != nil {
				claimed = append(claimed, *c)
			}
		}
		if err != nil || len(claimed) > 0 {
			return claimed, err
		}
	}
	return nil, nil
}

// slots returns n values, and pointers to scan into them.
func slots(n int) (values, into []any) {
	values, into = make([]any, n), make([]any, n)
	for i := range values {
		into[i] = &values[i]
	}
	return values, into
}

// scan reads a row of a claim. The first columns of the result go to before.
func (r *Claimer[R]) scan(scan func(...any) error, c *Claimed[R], before ...any) error {
	var seconds int64
	into := append(before, r.layout.into(reflect.ValueOf(&c.Row).Elem(), !r.plan.postgres)...)
	if r.plan.untilClass == number {
		into = append(into, &seconds)
	} else if r.plan.postgres {
		into = append(into, &c.ExpiresAt)
	} else {
		into = append(into, timely(&c.ExpiresAt))
	}
	if r.plan.token != "" {
		into = append(into, &c.LockID)
	}
	if err := scan(into...); err != nil {
		return fmt.Errorf("a row was claimed that does not fit into %T: %w", c.Row, err)
	}
	if r.plan.untilClass == number {
		c.ExpiresAt = time.Unix(seconds, 0)
	}
	c.ExpiresAt = c.ExpiresAt.UTC()
	return nil
}

// Extend moves the expiry of rows (at most 1,000) that agent still holds to now + TTL and returns how
// many it did.
func (r *Claimer[R]) Extend(ctx context.Context, agent any, rows ...Claimed[R]) (int, error) {
	return r.rewrite(ctx, "extend", agent, rows, func(*params) string { return r.plan.until + " = " + r.plan.end() })
}

// Release frees rows (at most 1,000) that agent still holds and returns how many.
func (r *Claimer[R]) Release(ctx context.Context, agent any, rows ...Claimed[R]) (int, error) {
	return r.rewrite(ctx, "release", agent, rows, func(*params) string { return r.plan.freed() })
}

// Finish sets columns and frees the row in one statement, or returns an error that matches
// ledger.ErrLeaseLost and changes nothing.
func (r *Claimer[R]) Finish(ctx context.Context, agent any, row Claimed[R], set map[string]any) error {
	var names []string
	var values []any
	for _, name := range slices.Sorted(maps.Keys(set)) {
		c, err := r.plan.need("set", name, "")
		if err != nil {
			return err
		}
		if q := quote(c.name); q == r.plan.by || q == r.plan.until || q == r.plan.token || slices.Contains(names, q) {
			return invalid("set", "column %s is set already", c.name)
		}
		names, values = append(names, quote(c.name)), append(values, set[name])
	}
	n, err := r.rewrite(ctx, "finish", agent, []Claimed[R]{row}, func(args *params) string {
		assign := r.plan.freed()
		for i, name := range names {
			assign += ", " + name + " = " + args.add(values[i])
		}
		return assign
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("lockable: finish %s %v: %w", r.plan.name, r.layout.key(reflect.ValueOf(row.Row)),
			ledger.ErrLeaseLost)
	}
	return err
}

// rewrite sets columns of rows that the agent holds.
func (r *Claimer[R]) rewrite(ctx context.Context, what string, agent any, held []Claimed[R],
	set func(*params) string) (int, error) {
	who, err := agentID(agent, r.plan.byClass)
	if err != nil {
		return 0, err
	}
	if len(held) > maxRows {
		return 0, invalid("rows", "%d, at most %d", len(held), maxRows)
	}
	var keys [][]any
	var tokens []string
	for i := range held {
		if r.plan.tokenCast == "uuid" && (len(held[i].LockID) != tokenLength || uuid.Validate(held[i].LockID) != nil) {
			continue // Postgres would refuse the text, and no claim had such a token
		}
		keys = append(keys, r.layout.key(reflect.ValueOf(held[i].Row)))
		tokens = append(tokens, held[i].LockID)
	}
	if len(keys) == 0 {
		return 0, nil
	}
	args := r.plan.params()
	query := r.plan.held(set(args), args, who, keys, tokens)
	var n int64
	err = r.do(ctx, what, func() (err error) {
		n, err = r.db.Exec(ctx, query, args.args...)
		return err
	})
	return int(n), err
}

// ReleaseExpired frees up to limit rows (1 … 10,000) whose time is over, also those outside of Where, longest
// ago first, and returns how many. Claim takes expired rows without it. It keeps the table readable for other programs,
// and claims cheap where there are many expired rows outside of Where.
func (r *Claimer[R]) ReleaseExpired(ctx context.Context, limit int) (int, error) {
	if limit < 1 || limit > maxRelease {
		return 0, invalid("limit", "%d: must be 1 … %d", limit, maxRelease)
	}
	query, args := r.plan.overdue(limit)
	var n int64
	err := r.do(ctx, "release", func() (err error) {
		n, err = r.db.Exec(ctx, query, args...)
		return err
	})
	return int(n), err
}
