package sqlstore

import (
	"cmp"
	"context"
	"math"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

const (
	// LastColumns are the columns of an attempt a, without log and output. All are NULL if the join found none.
	LastColumns = `a.attempt, a.agent, a.lock_id, a.worker, a.epoch, a.period, a.leased_at, a.finished_at, a.outcome, a.final, a.code, a.error, a.cause, a.due_at, a.started_at, a.renewals`

	// AttemptColumns are all columns of an attempt a.
	AttemptColumns = `a.item_id, a.kind, a.log, a.output, ` + LastColumns
)

// LastRow reads LastColumns.
type LastRow struct {
	a       ledger.Attempt
	token   uuid.UUID
	outcome int16
}

// Dest returns the destinations of LastColumns.
func (r *LastRow) Dest() []any {
	a := &r.a
	return []any{&a.Attempt, &a.Agent, &r.token, &a.Worker, &a.Epoch, &a.Period, &a.LeasedAt, &a.FinishedAt, &r.outcome,
		&a.Final, &a.Code, &a.Error, &a.Cause, &a.DueAt, &a.StartedAt, &a.Renewals}
}

// Last returns the attempt that was read, of an item of a kind; nil if there was none.
func (r *LastRow) Last(id int64, kind string) *ledger.Attempt {
	if r.a.Attempt == 0 {
		return nil
	}
	a := r.a
	a.ItemID, a.Kind, a.Outcome = id, kind, code.Outcome(r.outcome)
	if a.LockID = ""; r.token != uuid.Nil {
		a.LockID = r.token.String()
	}
	return &a
}

// AttemptRow reads AttemptColumns.
type AttemptRow struct {
	last LastRow
	a    ledger.Attempt
}

// Dest returns the destinations of AttemptColumns.
func (r *AttemptRow) Dest() []any {
	return append([]any{&r.a.ItemID, &r.a.Kind, &r.a.Log, &r.a.Output}, r.last.Dest()...)
}

// Attempt returns the attempt that was read.
func (r *AttemptRow) Attempt() ledger.Attempt {
	a := *r.last.Last(r.a.ItemID, r.a.Kind)
	a.Log, a.Output = r.a.Log, r.a.Output
	return a
}

// Attempts implements ledger.Store.
func (s Store) Attempts(ctx context.Context, id int64) ([]ledger.Attempt, error) {
	return read(ctx, s, func(in Session) ([]ledger.Attempt, error) { return attempts(in, id, 0) })
}

// AttemptsBefore implements ledger.Store.
func (s Store) AttemptsBefore(ctx context.Context, id, before int64, limit int) ([]ledger.Attempt, error) {
	before = cmp.Or(before, math.MaxInt64)
	return read(ctx, s, func(in Session) ([]ledger.Attempt, error) {
		var r AttemptRow
		return list(in, `SELECT `+AttemptColumns+` FROM {{S}}.ledger_attempts a WHERE a.item_id = $1 AND a.attempt < $2
 ORDER BY a.attempt DESC LIMIT $3`, []any{id, before, limit}, r.Dest(),
			func() (ledger.Attempt, error) { return r.Attempt(), nil })
	})
}

// Outputs implements ledger.Tx.
func (t Tx) Outputs(ids []int64) (map[int64][]byte, error) {
	outputs := map[int64][]byte{}
	var id int64
	var output []byte
	err := t.in.Query(`SELECT i.id, (SELECT o.output FROM {{S}}.ledger_attempts o WHERE o.item_id = i.id
 AND length(o.output) > 0 ORDER BY o.attempt DESC LIMIT 1) FROM {{S}}.ledger_items i WHERE i.id = ANY($1)`, []any{ids},
		[]any{&id, &output}, func() error { outputs[id] = output; return nil })
	return outputs, err
}

// Attempts implements ledger.Tx.
func (t Tx) Attempts(id, from int64) ([]ledger.Attempt, error) { return attempts(t.in, id, from) }

func attempts(in Session, id, from int64) ([]ledger.Attempt, error) {
	var r AttemptRow
	return list(in, `SELECT `+AttemptColumns+` FROM {{S}}.ledger_attempts a WHERE a.item_id = $1 AND a.attempt >= $2
 ORDER BY a.attempt`, []any{id, from}, r.Dest(),
		func() (ledger.Attempt, error) { return r.Attempt(), nil })
}

// LastOutput implements ledger.Store.
func (s Store) LastOutput(ctx context.Context, id int64) ([]byte, error) {
	return read(ctx, s, func(in Session) (out []byte, err error) {
		_, err = row(in, `SELECT output FROM {{S}}.ledger_attempts WHERE item_id = $1 AND outcome IN `+code.Completed+
			` ORDER BY attempt DESC LIMIT 1`, []any{id}, &out)
		return out, err
	})
}
