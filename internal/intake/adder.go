package intake

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
)

// maxNoted is how many inputs that were not taken, and how many bad lines, are kept by name.
const maxNoted = 100

// Adder reads a source and adds its items, as many at a time as have been read.
type Adder struct {
	Source *Source
	Add    func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error)
	// Each is called with every input and the answer for it; may be nil.
	Each func(input string, a ledger.Added) error
	// Draw takes a sample of the source; nil takes all.
	Draw *draw

	Counts map[ledger.Verdict]int64
	// Cancelled are the ids of known items that are cancelled and stay so.
	Cancelled []int64
	NotTaken  []NotTaken // the first ones, wrong ones before others …
	Left      int64      // … and how many there are
	Wrong     int64      // of these: those that should have been taken, see NotTaken
	NoMatch   int64      // … those that fit no pattern
	Excluded  int64      // … that --exclude leaves out
	BadLines  []BadLine
	Bad       int64
}

// batch is the most items that are added in one transaction.
const batch = 1000

// foundOr is an element of Source.Items.
type foundOr struct {
	found Found
	err   error
}

// Run adds everything. A goroutine reads the source, so that items are added while it waits for more. If ctx ends while
// stdin is silent, that goroutine remains until input comes or the program ends.
func (d *Adder) Run(ctx context.Context) error {
	d.Counts = map[ledger.Verdict]int64{}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	reads := make(chan foundOr, batch)
	go func() {
		defer close(reads)
		for found, err := range d.Source.Items(reading) {
			select {
			case reads <- foundOr{found, err}:
			case <-reading.Done():
				return
			}
		}
	}()
	for {
		var names []string
		var items []ledger.NewItem
		more, err := gather(ctx, reads, func(r foundOr) error {
			if r.err != nil {
				return d.note(r.err)
			}
			names = append(names, r.found.Input)
			items = append(items, r.found.Item)
			return nil
		})
		switch {
		case err != nil || len(items) == 0:
		case d.Draw != nil:
			err = d.Draw.offer(ctx, names, items)
		default:
			err = d.take(ctx, names, items)
		}
		if err == nil && !more && d.Draw != nil {
			err = d.addSample(ctx)
		}
		if err != nil || !more {
			return err
		}
	}
}

// addSample adds the sample. Other processes may add items of the same sample or of the list meanwhile. If an item was
// known already, addSample counts again how many items the sample lacks, and continues with the next ranks. So all
// processes go through the same inputs, in the same order, until the sample is complete.
func (d *Adder) addSample(ctx context.Context) error {
	rest := d.Draw.inOrder()
	left, err := d.Draw.missing(ctx)
	if err != nil {
		return err
	}
	for left > 0 && len(rest) > 0 {
		n := min(left, batch, len(rest))
		before := d.Counts[ledger.VerdictAdded]
		var names []string
		var items []ledger.NewItem
		for _, c := range rest[:n] {
			names, items = append(names, c.input), append(items, c.item)
		}
		if err := d.take(ctx, names, items); err != nil {
			return err
		}
		rest = rest[n:]
		if left -= n; int(d.Counts[ledger.VerdictAdded]-before) < n {
			if left, err = d.Draw.missing(ctx); err != nil {
				return err
			}
		}
	}
	d.Counts[ledger.VerdictKnown] += d.Draw.known
	return nil
}

// linger is how long an input waits for others to be added with it.
const linger = 10 * time.Millisecond

// gather waits until an input was read and takes those that come soon after it, up to a batch.
func gather(ctx context.Context, reads <-chan foundOr, take func(foundOr) error) (more bool, err error) {
	var late <-chan time.Time
	for range batch {
		select {
		case r, ok := <-reads:
			if !ok { // the end of the source, or of ctx
				return false, ctx.Err()
			}
			if err := take(r); err != nil {
				return false, err
			}
		case <-late:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if late == nil {
			late = time.After(linger)
		}
	}
	return true, nil
}

// take adds items and counts the answers.
func (d *Adder) take(ctx context.Context, names []string, items []ledger.NewItem) error {
	added, err := d.Add(ctx, items)
	if err != nil {
		return err
	}
	for i, a := range added {
		d.Counts[a.Verdict]++
		if a.State == ledger.StateCancelled {
			d.Cancelled = append(d.Cancelled, a.ID)
		}
		if d.Each != nil {
			if err := d.Each(names[i], a); err != nil {
				return err
			}
		}
	}
	return nil
}

// note keeps an error about one input that makes no item; any other error ends Run.
func (d *Adder) note(err error) error {
	if nt, ok := errors.AsType[*NotTaken](err); ok {
		d.leave(*nt)
		return nil
	}
	if bl, ok := errors.AsType[*BadLine](err); ok {
		if d.Bad++; len(d.BadLines) < maxNoted {
			d.BadLines = append(d.BadLines, *bl)
		}
		return nil
	}
	return QueryError(err)
}

// leave keeps an input that was not taken.
func (d *Adder) leave(n NotTaken) {
	at := len(d.NotTaken)
	if n.Wrong {
		at = min(int(d.Wrong), maxNoted)
		d.Wrong++
	}
	if d.NotTaken = slices.Insert(d.NotTaken, at, n); len(d.NotTaken) > maxNoted {
		d.NotTaken = d.NotTaken[:maxNoted]
	}
	d.Left++
	switch n.Reason {
	case NoMatch:
		d.NoMatch++
	case Excluded:
		d.Excluded++
	}
}

// Total returns how many inputs made items.
func (d *Adder) Total() (n int64) {
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Listed returns how many inputs can become items.
func (d *Adder) Listed() int64 {
	if d.Draw != nil {
		return d.Draw.listed
	}
	return d.Total()
}

// QueryError returns an error with advice if the query is wrong.
func QueryError(err error) error {
	bad, ok := errors.AsType[*query.Error](err)
	if !ok {
		return err
	}
	f := failure.Usage("bad_query", bad.Hint, "%s", bad.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		f.Exit, f.Code = failure.ExitTemporary, "query_timeout"
	}
	f.Cause = err
	return f
}
