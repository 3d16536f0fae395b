package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	// PolicyColumns are the columns of a kind k that the records of its items need.
	PolicyColumns = `k.kind, k.plugin, k.input, k.on_lost, k.max_failures, k.max_crashes, k.max_lost, k.backoff_base, k.backoff_cap, k.timeout, k.keep, k.paused, k.definition, k.limits`

	kindColumns = PolicyColumns + `, k.config, k.defaults`
)

// PolicyRow reads PolicyColumns.
type PolicyRow struct {
	k                         ledger.Kind
	input, limits             string
	doubt                     int16
	base, most, timeout, keep int64 // µs
}

// Dest returns the destinations of PolicyColumns.
func (r *PolicyRow) Dest() []any {
	k := &r.k
	return []any{&k.Name, &k.Plugin, &r.input, &r.doubt, &k.MaxFailures, &k.MaxCrashes, &k.MaxLost,
		&r.base, &r.most, &r.timeout, &r.keep, &k.Paused, &k.Definition, &r.limits}
}

// Kind returns the kind that was read.
func (r *PolicyRow) Kind() (ledger.Kind, error) {
	k := r.k
	if k.OnLost = ""; r.doubt == 1 {
		k.OnLost = ledger.OnLostDoubt
	}
	micro := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	k.Backoff, k.Timeout, k.Keep = ledger.Backoff{Base: micro(r.base), Cap: micro(r.most)}, micro(r.timeout), micro(r.keep)
	err := kept(k.Name, parse(r.input, &k.Input), parse(r.limits, &k.Limits))
	return k, err
}

// kept joins the errors of parsing columns of a kind.
func kept(kind string, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("what is kept of kind %s: %w", kind, err)
	}
	return nil
}

// kinds reads whole kinds. rows is the end of the statement, behind the table.
func kinds(in Session, rows string, args ...any) ([]ledger.Kind, error) {
	var r PolicyRow
	var config, defaults string
	return list(in, `SELECT `+kindColumns+` FROM {{S}}.ledger_kinds k `+rows, args, append(r.Dest(), &config, &defaults),
		func() (ledger.Kind, error) {
			k, err := r.Kind()
			k.Config, k.Defaults = config, nil
			err = errors.Join(err, kept(k.Name, parse(defaults, &k.Defaults)))
			return k, err
		})
}

// Kinds returns the kinds with these names, or all kinds without names, by name.
func Kinds(in Session, names ...string) ([]ledger.Kind, error) {
	if len(names) > 0 {
		return kinds(in, `WHERE k.kind = ANY($1) ORDER BY k.kind`, names)
	}
	return kinds(in, `ORDER BY k.kind`)
}

// Kind returns one kind; its zero policy if there is no row.
func Kind(in Session, name string) (ledger.Kind, error) { return kind(in, name, "") }

// kind is Kind with a clause that locks the row.
func kind(in Session, name, lock string) (ledger.Kind, error) {
	all, err := kinds(in, `WHERE k.kind = $1`+lock, name)
	if err != nil || len(all) == 0 {
		return ledger.Kind{Name: name}, err
	}
	return all[0], nil
}

// Kinds implements ledger.Store.
func (s Store) Kinds(ctx context.Context, names ...string) ([]ledger.Kind, error) {
	return soon(ctx, s, func(in Session) ([]ledger.Kind, error) { return Kinds(in, names...) })
}

// Recurring implements ledger.Store. LIMIT keeps Postgres from joining whole tables.
func (s Store) Recurring(ctx context.Context) ([]string, error) {
	return read(ctx, s, func(in Session) ([]string, error) {
		var kind string
		return list(in, `SELECT k.kind FROM {{S}}.ledger_kinds k WHERE (SELECT 1 FROM {{S}}.ledger_items i
 WHERE i.kind = k.kind AND i.every IS NOT NULL LIMIT 1) = 1 ORDER BY k.kind`, nil, []any{&kind}, is(&kind))
	})
}

// Kind implements ledger.Tx.
func (t Tx) Kind(name string) (k ledger.Kind, known bool, err error) {
	known = true
	err = t.in.Later(`INSERT INTO {{S}}.ledger_kinds (kind) VALUES ($1) ON CONFLICT (kind) DO NOTHING RETURNING kind`,
		[]any{name}, []any{new(string)}, func() error { known = false; return nil })
	if err != nil {
		return k, false, err
	}
	k, err = kind(t.in, name, ` FOR UPDATE`)
	return k, known, err
}

// PutKind writes a kind. The store itself handles a change of the limits.
func PutKind(in Session, k ledger.Kind) (limitsChanged bool, err error) {
	limits, before, doubt := JSON(k.Limits), "", int16(0)
	if k.OnLost == ledger.OnLostDoubt {
		doubt = 1
	}
	defaults := ""
	if len(k.Defaults) > 0 {
		defaults = document(k.Defaults)
	}
	if _, err := row(in, `SELECT limits FROM {{S}}.ledger_kinds WHERE kind = $1`, []any{k.Name}, &before); err != nil {
		return false, err
	}
	return limits != before, exec(in,
		`UPDATE {{S}}.ledger_kinds SET plugin = $2, input = $3, on_lost = $4, max_failures = $5, max_crashes = $6, max_lost = $7,
 backoff_base = $8, backoff_cap = $9, timeout = $10, keep = $11, paused = $12, definition = $13, limits = $14, laned = laned OR $14 <> '', config = $15, defaults = $16 WHERE kind = $1`,
		k.Name, k.Plugin, document(k.Input), doubt, k.MaxFailures, k.MaxCrashes, k.MaxLost,
		k.Backoff.Base.Microseconds(), k.Backoff.Cap.Microseconds(), k.Timeout.Microseconds(), k.Keep.Microseconds(),
		k.Paused, k.Definition, limits, k.Config, defaults)
}
