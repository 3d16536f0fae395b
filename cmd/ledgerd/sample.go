package main

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/ledger"
)

// sampleFlags are the flags that take a part of a list.
type sampleFlags struct {
	sample int
	seed   string
}

func (s *sampleFlags) define(f *pflag.FlagSet) {
	f.IntVar(&s.sample, "sample", 0, "add only `N` of the inputs, drawn by chance from those that are not known in the scope")
	f.StringVar(&s.seed, "seed", "", "`text` that decides --sample: the same gives the same sample on every database; run again, it is completed, not repeated")
}

// maxSample bounds what a sample keeps in memory.
const maxSample = 1_000_000

func (s *sampleFlags) check() error {
	switch {
	case s.sample < 0 || s.sample > maxSample:
		return usage("bad_flag", "", "--sample %d: must be 1 … %d", s.sample, maxSample)
	case s.sample == 0 && s.seed != "":
		return usage("bad_flag", "", "--seed goes with --sample")
	case len(s.seed) > 100:
		return usage("bad_flag", "", "--seed: %d bytes, at most 100", len(s.seed))
	}
	return nil
}

// mark is what items of this sample have as their source: the list, the seed and what is to be
// done. By it a command that was killed finds what it has added.
func (s *sourceFlags) mark(args []string, payload []byte) string {
	list := cmp.Or(s.from, strings.Join(args, " "))
	if len(list) > 200 {
		list = list[:200]
	}
	digest := sha256.Sum256(payload)
	return strings.ToValidUTF8(fmt.Sprintf("%s, sample %s, %x", filepath.Base(list), s.seed, digest[:4]), "")
}

// rank orders the keys of a sample, as bytes: a SHA-256, so that for any seed each set of keys is as likely as
// any other to come first, and the same on every machine.
func rank(seed, key string) [sha256.Size]byte { return sha256.Sum256([]byte(seed + ":" + key)) }

// draw is a part of a list, taken by chance: of the inputs that are not known in the scope the
// first ones in the order of their ranks. It keeps as many as are wanted and some to spare.
type draw struct {
	ledger *ledger.Ledger // nil: nothing is known
	of     ledger.NewItem // kind and scope
	seed   string
	size   int // of the sample
	want   int // still to be added
	heap   drawn
	in     map[string]bool // keys in the heap
	listed int64           // inputs that were looked at …
	known  int64           // … and how many of them were known
}

// newDraw makes a draw of n inputs, less those of the same sample that are there already.
func newDraw(ctx context.Context, l *ledger.Ledger, of ledger.NewItem, n int, seed string) (*draw, error) {
	d := &draw{ledger: l, of: of, seed: seed, size: n, in: map[string]bool{}}
	var err error
	d.want, err = d.missing(ctx)
	return d, err
}

// missing is how many inputs the sample lacks now.
func (d *draw) missing(ctx context.Context) (int, error) {
	if d.ledger == nil {
		return d.size, nil
	}
	have, err := d.ledger.Count(ctx, ledger.Filter{Kinds: []string{d.of.Kind}, Scopes: []string{d.of.Scope}, Sources: []string{d.of.Source}})
	return max(0, d.size-int(have)), err
}

// spare is how many more are kept than are wanted, for those that others add meanwhile.
func (d *draw) spare() int { return d.want/10 + 100 }

// offer looks at inputs. What is not known and has a low enough rank is kept.
func (d *draw) offer(ctx context.Context, names []string, items []ledger.NewItem) error {
	known := make([]bool, len(items))
	if d.ledger != nil {
		keys := make([]ledger.Identity, len(items))
		for i, n := range items {
			keys[i] = ledger.Identity{Kind: n.Kind, Scope: n.Scope, Key: n.Key}
		}
		var err error
		if known, err = d.ledger.Known(ctx, keys...); err != nil {
			return err
		}
	}
	for i, n := range items {
		d.listed++
		if known[i] {
			d.known++
		}
		if known[i] || d.in[n.Key] {
			continue
		}
		c := candidate{rank(d.seed, n.Key), names[i], n}
		if len(d.heap) == d.want+d.spare() {
			if d.want == 0 || bytes.Compare(c.rank[:], d.heap[0].rank[:]) >= 0 {
				continue
			}
			delete(d.in, heap.Pop(&d.heap).(candidate).item.Key)
		}
		d.in[n.Key] = true
		heap.Push(&d.heap, c)
	}
	return nil
}

// chosen are the inputs of the sample, and those to spare, in their order.
func (d *draw) chosen() []candidate {
	slices.SortFunc(d.heap, func(a, b candidate) int { return bytes.Compare(a.rank[:], b.rank[:]) })
	return d.heap
}

type candidate struct {
	rank  [sha256.Size]byte
	input string
	item  ledger.NewItem
}

// drawn is a heap with the highest rank on top.
type drawn []candidate

func (h drawn) Len() int           { return len(h) }
func (h drawn) Less(i, j int) bool { return bytes.Compare(h[i].rank[:], h[j].rank[:]) > 0 }
func (h drawn) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *drawn) Push(x any) { *h = append(*h, x.(candidate)) }

// Pop implements heap.Interface.
func (h *drawn) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// chance is a seed that nobody chose.
func chance() string { return strings.ToLower(rand.Text()[:10]) }
