package tables

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/schema"
)

// A batch of rows is inserted at once. It ends with the row that reaches one of these numbers.
const (
	batchRows  = 5_000
	batchBytes = 8 << 20
)

// Copied is the result of copying one table.
type Copied struct {
	Table string
	Rows  int64
}

// Options of Copy.
type Options struct {
	// Progress gets each table's name and how many of its rows were copied; it must not block.
	Progress func(table string, rows int64)
}

// Copy copies all rows of the source, as they are at one moment, into the target, an empty ledger. The copy is one
// transaction of the target: after an error the target is empty, or complete if a connection broke at the commit. The
// source should be quiet (see Quiet) and is not changed. The target keeps the id that it was made with, and takes over
// the source's incarnation and environment.
//
// Errors: ledger.ErrConflict for a target that is not empty; ledger.ErrSchema if source and target do not have the same
// tables.
func Copy(ctx context.Context, from, to Store, o Options) (all []Copied, err error) {
	if o.Progress == nil {
		o.Progress = func(string, int64) {}
	}
	err = from.ReadTables(ctx, func(r Reader) error {
		return to.WriteTables(ctx, func(w Writer) error {
			all, err = (&copying{ctx, r, w, o}).all()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// copying is one call of Copy.
type copying struct {
	ctx     context.Context
	from    Reader
	to      Writer
	options Options
}

func (c *copying) all() ([]Copied, error) {
	source, err := c.from.Tables()
	if err != nil {
		return nil, err
	}
	target, err := c.to.Tables()
	if err != nil {
		return nil, err
	}
	if err := match(source[1:], target[1:]); err != nil {
		return nil, err
	}
	if err := c.meta(source[0], target[0]); err != nil {
		return nil, err
	}
	if err := c.empty(target[1:]); err != nil {
		return nil, err
	}
	all := []Copied{}
	for _, t := range source[1:] {
		n, err := c.table(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		all = append(all, Copied{t.Name, n})
	}
	return all, nil
}

// match checks that source and target have the same tables and columns.
func match(source, target []Table) error {
	columns := map[string][]string{}
	for _, t := range target {
		columns[t.Name] = slices.Sorted(slices.Values(t.Columns))
	}
	for _, t := range source {
		has, want := columns[t.Name], slices.Sorted(slices.Values(t.Columns))
		if !slices.Equal(has, want) {
			return &ledger.Error{Kind: ledger.ErrSchema,
				Message: fmt.Sprintf("the two ledgers do not have the same schema (table %s: %v here, %v there)", t.Name, want,
					has), Hint: "use the newest ledgerd that knows both, and migrate the older ledger"}
		}
	}
	return nil
}

// meta gives the target the facts about the source that a copy keeps.
func (c *copying) meta(source, target Table) error {
	from, err := readMeta(c.from, source)
	if err != nil {
		return err
	}
	to, err := readMeta(c.to, target)
	if err != nil {
		return err
	}
	if from["ledger_id"] == to["ledger_id"] {
		return &ledger.Error{Kind: ledger.ErrConflict, Message: "source and target are the same ledger, or one is a " +
			"backup of the other", Hint: "name an empty target"}
	}
	for _, k := range []string{schema.Restored, schema.Environment} {
		if v, ok := from[k]; ok {
			if err := c.to.SetMeta(k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func readMeta(r Reader, meta Table) (map[string]string, error) {
	k, v := slices.Index(meta.Columns, "k"), slices.Index(meta.Columns, "v")
	all := map[string]string{}
	return all, r.Scan(meta, func(row Row) error {
		all[row[k].(string)] = row[v].(string)
		return nil
	})
}

// empty refuses a target that has rows.
func (c *copying) empty(all []Table) error {
	for _, t := range all {
		if empty, err := c.to.Empty(t); err != nil {
			return err
		} else if !empty {
			return &ledger.Error{Kind: ledger.ErrConflict, Message: fmt.Sprintf("the target is not empty: there are rows in %s",
				t.Name), Hint: "name another file, database or schema"}
		}
	}
	return nil
}

// table copies the rows of one table, and its sequence. The target may have the columns in another order.
func (c *copying) table(t Table) (copied int64, err error) {
	var batch []Row
	var size int
	flush := func() error {
		if err := c.ctx.Err(); err != nil || len(batch) == 0 { // the target's transaction may not end with ctx
			return err
		}
		if err := c.to.Insert(t, batch); err != nil {
			return err
		}
		copied += int64(len(batch))
		c.options.Progress(t.Name, copied)
		batch, size = batch[:0], 0
		return nil
	}
	err = c.from.Scan(t, func(row Row) error {
		batch = append(batch, slices.Clone(row))
		if size += weight(row); len(batch) < batchRows && size < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return copied, err
	}
	last, err := c.from.Sequence(t)
	if err != nil {
		return copied, err
	}
	return copied, c.to.SetSequence(t, last)
}

// weight is roughly the size of a row in bytes.
func weight(r Row) (n int) {
	for _, v := range r {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
	}
	return n + 16*len(r)
}
