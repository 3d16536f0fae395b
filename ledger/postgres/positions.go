package postgres

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// A probe is a search of an index for rows to claim, to promote or to expire. The entries of rows that left the index
// stay there while any transaction in the database is older than their end. A probe from the start of the index walks
// over all of them, and a drain of half a million items runs at a third of its speed. So this process remembers how far
// each probe came, its position, and the next one starts there.
//
// Rows may appear before a position: by a retry, a release, an insert that committed late. Items that this process
// makes ready take the position back to them. For all other rows every probe goes over the whole index again, after the
// longer of a second and 20 times the duration of its last whole walk, but after 10 seconds at most.

// levels are the priorities −2 … 2.
const levels = bounds.MaxPriority - bounds.MinPriority + 1

// wholeEvery is the shortest time between two probes of the whole index, and one in wholeShare the share of time that
// they may take. wholeMost is the longest time between them: a probe that took longer than a twentieth of it mostly
// waited, and rows must not be overlooked for so long.
const (
	wholeEvery = time.Second
	wholeShare = 20
	wholeMost  = 10 * time.Second
)

// margin is how far a position stays behind the database's clock after a probe that found all rows. Most rows that
// appear later are due later than that.
const margin = 10 * time.Second

// place is where a row is in an index: its due time and its id.
type place struct {
	at time.Time
	id int64
}

func (p place) compare(q place) int { return cmp.Or(p.at.Compare(q.at), cmp.Compare(p.id, q.id)) }

func earlier(p, q place) place {
	if p.compare(q) < 0 {
		return p
	}
	return q
}

// frontier is the position of one probe. The owner's mutex guards it.
type frontier struct {
	at    place
	whole time.Time // when the next walk of the whole index is due
	walks []*walk   // running
}

// walk is one run of a probe.
type walk struct {
	f       *frontier
	from    place
	whole   bool // it starts at the start of the index
	started time.Time
	lowered *place // the earliest place at which a row appeared meanwhile
}

func (f *frontier) begin(now time.Time) *walk {
	w := &walk{f: f, from: f.at, started: now}
	if !now.Before(f.whole) {
		w.whole, w.from = true, place{}
	}
	f.walks = append(f.walks, w)
	return w
}

// reached ends a walk that found all rows up to a place. all means that there are no rows behind it.
func (w *walk) reached(to place, all bool, now time.Time) {
	w.leave()
	if w.lowered != nil {
		to = earlier(to, *w.lowered)
	}
	f := w.f
	// A whole walk that stopped early takes the position back: rows between the two places are not known.
	if to.compare(f.at) > 0 || w.whole && !all {
		f.at = to
	}
	if w.whole {
		f.whole = now.Add(min(max(wholeEvery, wholeShare*now.Sub(w.started)), wholeMost))
	}
}

// leave ends a walk without a result.
func (w *walk) leave() {
	w.f.walks = slices.DeleteFunc(w.f.walks, func(v *walk) bool { return v == w })
}

// lower takes the position back to a place, also for running walks.
func (f *frontier) lower(p place) {
	f.at = earlier(f.at, p)
	for _, w := range f.walks {
		if w.lowered == nil || p.compare(*w.lowered) < 0 {
			w.lowered = &p
		}
	}
}

// backlogPart is what a claim looks at.
type backlogPart struct {
	kind  string
	shard scheduler.Shard
}

// positions are those of all probes of a process.
type positions struct {
	mu      sync.Mutex
	ready   map[backlogPart]*[levels]frontier
	waiting map[string]*frontier // by kind
	leased  frontier
}

// marks are places at which rows became ready: the earliest of each kind and priority.
type marks map[mark]time.Time

type mark struct {
	kind     string
	priority int16
}

func (m marks) add(kind string, priority int16, due time.Time) {
	k := mark{kind, priority}
	if have, ok := m[k]; !ok || due.Before(have) {
		m[k] = due
	}
}

// lower takes positions back to rows that this process made ready or made wait. The pause of the kinds
// in reset has ended: their positions go back to the start.
func (p *positions) lower(ready marks, waiting map[string]time.Time, reset []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for part, f := range p.ready {
		for i := range f {
			if due, ok := ready[mark{part.kind, int16(i) + bounds.MinPriority}]; ok {
				f[i].lower(place{at: due})
			}
			if slices.Contains(reset, part.kind) {
				f[i].lower(place{})
			}
		}
	}
	for kind, due := range waiting {
		if f := p.waiting[kind]; f != nil {
			f.lower(place{at: due})
		}
	}
}

// claims begins the walks of a claim, one for each priority.
func (p *positions) claims(part backlogPart) [levels]*walk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready == nil {
		p.ready = map[backlogPart]*[levels]frontier{}
	}
	f := p.ready[part]
	if f == nil {
		f = new([levels]frontier)
		p.ready[part] = f
	}
	var walks [levels]*walk
	now := time.Now()
	for i := range f {
		walks[i] = f[i].begin(now)
	}
	return walks
}

// found is how far a claim came.
type found struct {
	now  time.Time      // of the database; zero: the walks found nothing out
	last [levels]*place // the last row claimed, by priority
	all  bool           // there were no more rows
}

// claimed ends the walks of a claim.
func (p *positions) claimed(walks [levels]*walk, f found) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	open := f.all // whether a level that yielded nothing was searched to its end
	for i := levels - 1; i >= 0; i-- {
		w, last := walks[i], f.last[i]
		switch {
		case f.now.IsZero():
			w.leave()
		case open:
			to := place{at: f.now.Add(-margin)}
			if last != nil && last.compare(to) > 0 {
				to = *last
			}
			w.reached(to, true, now)
		case last != nil: // the claim was full within this level; those before it were searched
			w.reached(*last, false, now)
			open = true
		default:
			w.leave()
		}
	}
}

// failed ends the walks of a claim that failed, and takes positions back to their start: other claims may have passed
// over rows that it had locked, and these rows may be free again.
func (p *positions) failed(walks ...*walk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range walks {
		w.leave()
		w.f.lower(w.from)
	}
}
