package intake

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
)

// MaxSample is the largest sample, since a sample is kept in memory.
const MaxSample = 1_000_000

// rank returns the bytes by which the keys of a sample are ordered. It is a SHA-256, so for a random seed each set of
// keys is equally likely to come first, and it is the same on every machine.
func rank(seed, key string) [sha256.Size]byte { return sha256.Sum256([]byte(seed + ":" + key)) }

// draw is a random sample of a list: of the inputs that are not known in the scope, those with the lowest ranks. It
// keeps as many as are wanted and some to spare.
type draw struct {
	ledger ledgers.Any    // nil: nothing is known
	of     ledger.NewItem // kind and scope
	seed   string
	size   int // of the sample
	Want   int // still to be added
	heap   candidates
	inHeap map[string]bool // keys
	listed int64           // inputs that were read …
	known  int64           // … and how many of them were known
}

// NewDraw returns a draw of n inputs, less the items that the same sample has already.
func NewDraw(ctx context.Context, l ledgers.Any, of ledger.NewItem, n int, seed string) (*draw, error) {
	d := &draw{ledger: l, of: of, seed: seed, size: n, inHeap: map[string]bool{}}
	var err error
	d.Want, err = d.missing(ctx)
	return d, err
}

// missing returns how many items the sample lacks now.
func (d *draw) missing(ctx context.Context) (int, error) {
	if d.ledger == nil {
		return d.size, nil
	}
	have, err := d.ledger.Count(ctx, ledger.Filter{Kinds: []string{d.of.Kind}, Scopes: []string{d.of.Scope},
		Sources: []string{d.of.Source}})
	return max(0, d.size-int(have)), err
}

// spare returns how many inputs are kept beyond Want, in case other processes add some meanwhile.
func (d *draw) spare() int { return d.Want/10 + 100 }

// offer considers inputs. It keeps a key that is not known and has a low enough rank.
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
		if known[i] || d.inHeap[n.Key] {
			continue
		}
		c := candidate{rank(d.seed, n.Key), names[i], n}
		if len(d.heap) == d.Want+d.spare() {
			if bytes.Compare(c.rank[:], d.heap[0].rank[:]) >= 0 {
				continue
			}
			delete(d.inHeap, heap.Pop(&d.heap).(candidate).item.Key)
		}
		d.inHeap[n.Key] = true
		heap.Push(&d.heap, c)
	}
	return nil
}

// inOrder returns the inputs of the sample, and those to spare, in the order of their ranks.
func (d *draw) inOrder() []candidate {
	slices.SortFunc(d.heap, func(a, b candidate) int { return bytes.Compare(a.rank[:], b.rank[:]) })
	return d.heap
}

// candidate is an input that may be in the sample.
type candidate struct {
	rank  [sha256.Size]byte
	input string
	item  ledger.NewItem
}

// candidates is a heap with the highest rank on top.
type candidates []candidate

func (h candidates) Len() int { return len(h) }

func (h candidates) Less(i, j int) bool { return bytes.Compare(h[i].rank[:], h[j].rank[:]) > 0 }

func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *candidates) Push(x any) { *h = append(*h, x.(candidate)) }

// Pop implements heap.Interface.
func (h *candidates) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Chance returns a random seed.
func Chance() string { return strings.ToLower(rand.Text()[:10]) }
