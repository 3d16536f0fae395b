package tables

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/schema"
)

// A batch of rows is one transaction of the target. It ends with the row that reaches one of these numbers.
const (
	batchRows  = 5_000
	batchBytes = 8 << 20
)

// Copied is the result of copying one table.
type Copied struct {
	Table  string
	Rows   int64  // that source and target have now
	Copied int64  // of these, by this call; the others were copied by an earlier call
	Sum    string // checksum of all rows, the same in source and target; see Sum
}

// Options of Copy.
type Options struct {
	// Progress gets each table's name and how many of its rows were copied; it must not block.
	Progress func(table string, rows int64)
}

// Copy copies all rows of the source into the target, an empty ledger. It first marks the target, so that other
// programs cannot open it, and at the end it compares both and removes the mark. After an interruption, call it again:
// it does not copy again the rows that were committed. The source must be quiet (see Quiet) and is not changed. The
// target keeps the id that it was made with.
//
// Errors: ledger.ErrConflict for a target that is not empty, or is marked for another source; ledger.ErrSchema if
// source and target do not have the same tables; ledger.ErrUnavailable if the source was changed meanwhile: call it
// again.
func Copy(ctx context.Context, from, to Store, o Options) ([]Copied, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64) {}
	}
	c := &copying{from: from, to: to, options: o, copied: map[string]int64{}}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	// Rows that an earlier call copied may have changed since. Then their tables are emptied and copied once more.
	for range 2 {
		if err := c.rows(ctx); err != nil {
			return nil, err
		}
		differing, err := c.compare(ctx)
		if err != nil {
			return nil, err
		}
		if len(differing) == 0 {
			return c.result(), c.finish(ctx)
		}
		if err := c.clear(ctx, differing); err != nil {
			return nil, err
		}
	}
	return nil, &ledger.Error{Kind: ledger.ErrUnavailable, Message: "the ledger was changed while it was copied",
		Hint: "stop what uses it and run the same command again"}
}

// copying is one call of Copy.
type copying struct {
	from, to Store
	options  Options
	id       string  // of the source
	tables   []Table // of the source, without Meta
	meta     Table   // of the target
	target   map[string]Table
	copied   map[string]int64
	sums     map[string]Sum
}

// begin marks the target for this source, unless it is marked so already. It refuses a target that is not empty.
func (c *copying) begin(ctx context.Context) error {
	err := c.from.ReadTables(ctx, func(r Reader) error {
		all, err := r.Tables()
		if err != nil {
			return err
		}
		meta, err := readMeta(r, all[0])
		c.id, c.tables = meta["ledger_id"], all[1:]
		return err
	})
	if err != nil {
		return err
	}
	return c.to.WriteTables(ctx, func(w Writer) error {
		all, err := w.Tables()
		if err != nil {
			return err
		}
		if err := c.match(all[1:]); err != nil {
			return err
		}
		c.meta = all[0]
		meta, err := readMeta(w, c.meta)
		switch {
		case err != nil || meta[schema.CopyFrom] == c.id:
			return err
		case meta[schema.CopyFrom] != "":
			return &ledger.Error{Kind: ledger.ErrConflict,
				Message: fmt.Sprintf("the target holds a part of another ledger (id %s)", meta[schema.CopyFrom]),
				Hint:    "finish that copy, or name another target"}
		case meta["ledger_id"] == c.id:
			return &ledger.Error{Kind: ledger.ErrConflict, Message: "source and target are the same ledger, or one is a " +
				"backup of the other", Hint: "name an empty target"}
		}
		if err := empty(w, all[1:]); err != nil {
			return err
		}
		return w.Insert(c.meta, []Row{metaRow(c.meta, schema.CopyFrom, c.id)})
	})
}

// match checks that source and target have the same tables and columns.
func (c *copying) match(target []Table) error {
	c.target = map[string]Table{}
	for _, t := range target {
		c.target[t.Name] = t
	}
	for _, t := range c.tables {
		has, want := slices.Sorted(slices.Values(c.target[t.Name].Columns)), slices.Sorted(slices.Values(t.Columns))
		if !slices.Equal(has, want) {
			return &ledger.Error{Kind: ledger.ErrSchema,
				Message: fmt.Sprintf("the two ledgers do not have the same schema (table %s: %v here, %v there)", t.Name, want,
					has), Hint: "use the newest ledgerd that knows both, and migrate the older ledger"}
		}
	}
	return nil
}

// empty refuses a ledger that has rows.
func empty(w Writer, all []Table) error {
	for _, t := range all {
		last, err := w.Last(t)
		if err != nil {
			return err
		}
		if last != nil {
			return &ledger.Error{Kind: ledger.ErrConflict, Message: fmt.Sprintf("the target is not empty: there are rows in %s",
				t.Name), Hint: "name another file, database or schema"}
		}
	}
	return nil
}

// write runs fn in a transaction of the target, if the target is still marked for this source. Another call of Copy may
// have ended, and other programs may use the target by now.
func (c *copying) write(ctx context.Context, fn func(w Writer) error) error {
	return c.to.WriteTables(ctx, func(w Writer) error {
		meta, err := readMeta(w, c.meta)
		if err != nil {
			return err
		}
		if meta[schema.CopyFrom] != c.id {
			return fmt.Errorf("%w: another copy into this target has ended", ledger.ErrConflict)
		}
		return fn(w)
	})
}

// rows copies what the target does not have.
func (c *copying) rows(ctx context.Context) error {
	return c.from.ReadTables(ctx, func(r Reader) error {
		for _, t := range c.tables {
			if err := c.table(ctx, r, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// table copies the rows of one table that are above the target's last.
func (c *copying) table(ctx context.Context, r Reader, t Table) error {
	into := Table{Name: t.Name, Columns: t.Columns, Key: t.Key} // the target may have its columns in another order
	var after Row
	err := c.to.ReadTables(ctx, func(r Reader) (err error) {
		after, err = r.Last(into)
		return err
	})
	if err != nil {
		return err
	}
	var batch []Row
	var size int
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := c.write(ctx, func(w Writer) error {
			if last, err := w.Last(into); err != nil {
				return err
			} else if !slices.Equal(last, after) {
				return fmt.Errorf("%w: another copy into this target is under way", ledger.ErrConflict)
			}
			return w.Insert(into, batch)
		})
		if err != nil {
			return fmt.Errorf("%s, rows %v to %v: %w", t.Name, t.keyOf(batch[0]), t.keyOf(batch[len(batch)-1]), err)
		}
		after = t.keyOf(batch[len(batch)-1])
		c.copied[t.Name] += int64(len(batch))
		c.options.Progress(t.Name, c.copied[t.Name])
		batch, size = batch[:0], 0
		return nil
	}
	err = r.Scan(t, after, func(row Row) error {
		batch = append(batch, slices.Clone(row))
		if size += weight(row); len(batch) < batchRows && size < batchBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
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

// compare reads source and target, each as it is at one moment, and returns the tables that differ.
func (c *copying) compare(ctx context.Context) (differing []Table, err error) {
	sourceSums, targetSums := map[string]Sum{}, map[string]Sum{}
	side := func(s Store, tables []Table, sums map[string]Sum) func() error {
		return func() error {
			return s.ReadTables(ctx, func(r Reader) error {
				for _, t := range tables {
					var err error
					if sums[t.Name], err = sum(r, t); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	var sides errgroup.Group
	sides.Go(side(c.from, c.tables, sourceSums))
	var target []Table
	for _, t := range c.tables {
		target = append(target, c.target[t.Name])
	}
	sides.Go(side(c.to, target, targetSums))
	if err := sides.Wait(); err != nil {
		return nil, err
	}
	for _, t := range target {
		if !sourceSums[t.Name].Equal(targetSums[t.Name]) {
			differing = append(differing, t)
		}
	}
	c.sums = sourceSums
	return differing, nil
}

// clear empties tables of the target.
func (c *copying) clear(ctx context.Context, all []Table) error {
	return c.write(ctx, func(w Writer) error {
		for _, t := range all {
			c.copied[t.Name] = 0
			if err := w.Clear(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// finish raises the sequences of the target and removes its mark. The target takes over the source's incarnation.
func (c *copying) finish(ctx context.Context) error {
	last := map[string]int64{}
	var source map[string]string
	err := c.from.ReadTables(ctx, func(r Reader) error {
		all, err := r.Tables()
		if err == nil {
			source, err = readMeta(r, all[0])
		}
		if err != nil {
			return err
		}
		for _, t := range c.tables {
			n, err := r.Sequence(t)
			if err != nil {
				return err
			}
			last[t.Name] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.write(ctx, func(w Writer) error {
		for _, t := range c.target {
			if err := w.SetSequence(t, last[t.Name]); err != nil {
				return err
			}
		}
		meta, err := readMeta(w, c.meta)
		if err != nil {
			return err
		}
		if err := w.Clear(c.meta); err != nil {
			return err
		}
		delete(meta, schema.CopyFrom)
		for _, k := range []string{schema.Restored, schema.Environment} {
			if v, ok := source[k]; ok {
				meta[k] = v
			}
		}
		rows := []Row{}
		for k, v := range meta {
			rows = append(rows, metaRow(c.meta, k, v))
		}
		return w.Insert(c.meta, rows)
	})
}

func (c *copying) result() []Copied {
	all := []Copied{}
	for _, t := range c.tables {
		all = append(all, Copied{Table: t.Name, Rows: c.sums[t.Name].Rows, Copied: c.copied[t.Name],
			Sum: c.sums[t.Name].String()})
	}
	return all
}

func readMeta(r Reader, meta Table) (map[string]string, error) {
	k, v := slices.Index(meta.Columns, "k"), slices.Index(meta.Columns, "v")
	all := map[string]string{}
	return all, r.Scan(meta, nil, func(row Row) error {
		all[row[k].(string)] = row[v].(string)
		return nil
	})
}

func metaRow(meta Table, key, value string) Row {
	r := make(Row, len(meta.Columns))
	r[slices.Index(meta.Columns, "k")], r[slices.Index(meta.Columns, "v")] = key, value
	return r
}
