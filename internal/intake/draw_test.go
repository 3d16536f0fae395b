package intake

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// Three processes add items of one list at the same time. Process A draws a sample of 1,500. Before A adds its first
// batch, process B adds the first batch (1,000) of the same sample and is killed, and process C adds 200 inputs of the
// list with another source. In the end, the sample has 1,500 items, and drawing it again adds none.
func TestSampleDrawnTogether(t *testing.T) {
	const size = batch + batch/2
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	list, elsewhere := make([]ledger.NewItem, 4*batch), make([]ledger.NewItem, batch/5)
	for i := range list {
		list[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Source: "list"}
	}
	for i := range elsewhere {
		elsewhere[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Source: "elsewhere"}
	}
	sample := func(before func(add int) error) error {
		d, err := NewDraw(t.Context(), l, list[0], size, "seed")
		if err != nil {
			return err
		}
		for at := 0; at < len(list); at += batch {
			if err := d.offer(t.Context(), make([]string, batch), list[at:at+batch]); err != nil {
				return err
			}
		}
		adds := 0
		a := Adder{Draw: d, Counts: map[ledger.Verdict]int64{}}
		a.Add = func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
			if err := before(adds); err != nil {
				return nil, err
			}
			adds++
			return l.Add(ctx, items...)
		}
		return a.addSample(t.Context())
	}
	checkSize := func(err error) {
		t.Helper()
		n, failed := l.Count(t.Context(), ledger.Filter{Sources: []string{"list"}})
		if err = errors.Join(err, failed); err != nil || n != size {
			t.Errorf("%d items of a sample of %d, %v", n, size, err)
		}
	}
	killed := errors.New("killed")
	checkSize(sample(func(add int) error {
		if add > 0 {
			return nil
		}
		err := sample(func(add int) error { return map[int]error{1: killed}[add] })
		if !errors.Is(err, killed) {
			return fmt.Errorf("the other was not killed: %w", err)
		}
		_, err = l.Add(t.Context(), elsewhere...)
		return err
	}))
	checkSize(sample(func(int) error { return nil }))
}

// A source that ends because ctx has ended was not read as a whole.
func TestGatherInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reads := make(chan foundOr)
	close(reads)
	for range 100 {
		if _, err := gather(ctx, reads, nil); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
