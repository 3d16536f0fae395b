package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	backlogReady   = "ledger_backlog_ready"
	backlogWaiting = "ledger_backlog_waiting"
	backlogLeased  = "ledger_backlog_leased"
	backlogStuck   = "ledger_backlog_stuck"
	attemptsFinal  = "ledger_attempts_final"
	attemptsFailed = "ledger_attempts_failed"
	itemsIdentity  = "ledger_items_kind_scope_key_key"
)

// slack is how many rows more than those it is about a scan may touch.
const slack = 10

// Each row that a statement is about costs it look-ups in some indexes, each as deep as the
// tree, and an entry in each index of what it writes.
const blocksPerRow, blocksBeside = 40, 300

// hot is one call of the hot path.
type hot struct {
	name    string
	indexes []string // that its statements are meant to go by, beside primary keys
	before  func()   // makes what it needs
	run     func()
	rows    int // that it is about, if not a batch
	// counts says that it counts what is in the backlog, which it may read as a whole where
	// that seems cheaper. It begins at no position, and so goes over dead entries.
	counts bool
	// finished says that it is of interest where many have finished: where few have, reading
	// them all is the best.
	finished bool
}

// workload are all calls of the hot path, on a ledger in which kind k may have anything.
type workload struct {
	*watched
	t        *testing.T
	batch    int
	leases   []*ledger.Lease // that are not used yet
	later    []ledger.NewItem
	again    []ledger.NewItem
	added    int
	fills    int
	finished bool // many have
}

func (w *workload) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// items are a batch of new ones.
func (w *workload) items(kind string, priority int16, due time.Time) []ledger.NewItem {
	items := make([]ledger.NewItem, w.batch)
	for i := range items {
		w.added++
		items[i] = ledger.NewItem{Kind: kind, Scope: "new", Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", w.added),
			Payload: []byte(`{"delimiter":";"}`), Priority: priority, Due: due}
	}
	return items
}

func (w *workload) add(items []ledger.NewItem) {
	w.t.Helper()
	_, err := w.ledger.Add(w.t.Context(), items...)
	w.ok(err)
}

// claim claims want items.
func (w *workload) claim(c ledger.Claim, want int) {
	w.t.Helper()
	c.Agent, c.Limit = "a", w.batch
	if c.Kind == "" {
		c.Kind = "k"
	}
	got, err := w.ledger.Claim(w.t.Context(), c)
	w.ok(err)
	if len(got) < want {
		w.t.Fatalf("%+v got %d items, want %d", c, len(got), want)
	}
	w.leases = append(w.leases, got...)
}

// use takes leases that are not used yet.
func (w *workload) use() (leases []*ledger.Lease) {
	leases, w.leases = w.leases[:w.batch], w.leases[w.batch:]
	return leases
}

func (w *workload) finish(result func(i int) ledger.Result) {
	w.t.Helper()
	endings := make([]ledger.Ending, w.batch)
	for i, ls := range w.use() {
		endings[i] = ledger.Ending{Lease: ls, Result: result(i)}
	}
	w.ok(errors.Join(w.ledger.Finish(w.t.Context(), endings...)...))
}

// ids of leases.
func ids(leases []*ledger.Lease) []int64 {
	all := make([]int64, len(leases))
	for i, ls := range leases {
		all[i] = ls.ID
	}
	return all
}

// backlog is how many rows the backlog has, and on how many blocks.
func (w *workload) backlog() (rows, blocks int) {
	w.t.Helper()
	w.ok(w.direct.QueryRow(w.t.Context(), w.render(`SELECT count(*), pg_relation_size('{{S}}.ledger_backlog') / 8192 FROM {{S}}.ledger_backlog`)).Scan(&rows, &blocks))
	return rows, blocks
}

// forget makes the next probes go over whole indexes.
func (w *workload) forget() {
	p := &w.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.waiting, p.leased = nil, nil, frontier{}
}

// calls are the hot path in an order in which each finds what it needs.
func (w *workload) calls() []hot {
	ctx := w.t.Context()
	ready := []string{backlogReady}
	calls := []hot{
		{name: "add new items", indexes: []string{itemsIdentity}, run: func() {
			for range 6 {
				w.again = w.items("k", 0, time.Time{})
				w.add(w.again)
			}
		}},
		{name: "add items for later", indexes: []string{itemsIdentity}, run: func() {
			w.later = w.items("k", 0, time.Now().Add(time.Hour))
			w.add(w.later)
		}},
		{name: "add known items", indexes: []string{itemsIdentity}, run: func() { w.add(w.again); w.add(w.again) }},
		{name: "add changed items", indexes: []string{itemsIdentity}, run: func() {
			for i := range w.again {
				w.again[i].Fingerprint = "2"
			}
			w.add(w.again)
		}},
		{name: "claim nothing", indexes: ready, run: func() { w.claim(ledger.Claim{Kind: "none"}, 0); w.claim(ledger.Claim{Kind: "none"}, 0) }},
		{name: "claim", indexes: ready, run: func() { w.claim(ledger.Claim{}, w.batch) }},
		{name: "claim more", indexes: ready, run: func() {
			for range 3 {
				w.claim(ledger.Claim{}, w.batch)
			}
		}},
		{name: "claim a shard", indexes: ready, rows: 5 * w.batch, run: func() { w.claim(ledger.Claim{Shard: ledger.Shard{Index: 1, Count: 4}}, 1) }},
		{name: "resume", indexes: []string{backlogReady, backlogLeased}, counts: true, run: func() {
			_, err := w.ledger.Claim(ctx, ledger.Claim{Kind: "k", Agent: "person", Limit: 5})
			w.ok(err)
			_, err = w.ledger.Claim(ctx, ledger.Claim{Kind: "k", Agent: "person", Limit: 10, Resume: true})
			w.ok(err)
		}},
	}
	for p := int16(ledger.MinPriority); p <= ledger.MaxPriority; p++ {
		kind := fmt.Sprint("level", p+2)
		calls = append(calls, hot{name: fmt.Sprint("claim of priority ", p), indexes: ready, before: func() { w.add(w.items(kind, p, time.Time{})) },
			run: func() { w.claim(ledger.Claim{Kind: kind}, w.batch); w.claim(ledger.Claim{Kind: kind}, 0) }})
	}
	return append(append(calls, w.endings()...), w.tending()...)
}

// settle gives attempts the statistics that autovacuum would: what reads them is done for people
// and now and then, not as soon as the first items of a kind have ended.
func (w *workload) settle() { w.exec(w.t, `ANALYZE {{S}}.ledger_attempts`) }

// endings are the calls under a lease.
func (w *workload) endings() []hot {
	ctx := w.t.Context()
	return []hot{
		{name: "renew", run: func() { w.ok(errors.Join(w.ledger.Renew(ctx, time.Minute, w.leases[:w.batch]...)...)) }},
		{name: "holders", run: func() { w.ok(errors.Join(w.ledger.Held(ctx, w.leases[:w.batch]...)...)) }},
		{name: "start", run: func() { w.ok(errors.Join(w.ledger.Start(ctx, time.Minute, w.leases[:w.batch]...)...)) }},
		{name: "complete", run: func() { w.finish(func(int) ledger.Result { return ledger.Done(nil) }) }},
		{name: "complete with output", run: func() { w.finish(func(int) ledger.Result { return ledger.Done([]byte("{}")) }) }},
		{name: "finish with errors", run: func() {
			w.finish(func(i int) ledger.Result {
				return []ledger.Result{ledger.Permanent(errors.New("no")), {Outcome: ledger.OutcomeFailed, Error: "again"}, ledger.Snooze(time.Hour, ""), ledger.Doubt(errors.New("?"))}[i%4]
			})
		}},
		{name: "finish and emit", indexes: []string{itemsIdentity}, run: func() {
			w.finish(func(i int) ledger.Result {
				return ledger.Done(nil, ledger.NewItem{Kind: "child", Key: fmt.Sprint(i)})
			})
		}},
	}
}

// tending are the calls that every worker makes now and then.
func (w *workload) tending() []hot {
	ctx := w.t.Context()
	since := time.Now().Add(-time.Minute)
	return []hot{
		{name: "look for what expired", indexes: []string{backlogLeased}, run: func() {
			_, err := w.ledger.Expire(ctx, w.batch)
			w.ok(err)
		}},
		{name: "expire", indexes: []string{backlogLeased}, before: func() {
			w.exec(w.t, `UPDATE {{S}}.ledger_backlog SET expires_at = clock_timestamp() - interval '1 s' WHERE item_id = ANY($1)`, ids(w.use()))
		}, run: func() {
			n, err := w.ledger.Expire(ctx, w.batch)
			if w.ok(err); n != w.batch {
				w.t.Fatalf("%d expired", n)
			}
		}},
		{name: "look for what is due", indexes: []string{backlogWaiting}, run: func() {
			for range 2 {
				_, err := w.ledger.Promote(ctx, w.batch)
				w.ok(err)
			}
		}},
		{name: "promote", indexes: []string{backlogWaiting}, before: func() {
			keys := make([]string, len(w.later))
			for i := range keys {
				keys[i] = w.later[i].Key
			}
			w.exec(w.t, `UPDATE {{S}}.ledger_backlog b SET due_at = clock_timestamp() - interval '1 s' FROM {{S}}.ledger_items i
 WHERE i.id = b.item_id AND i.kind = 'k' AND i.scope = 'new' AND i.key = ANY($1)`, keys)
		}, run: func() {
			kinds, _, err := w.Promote(ctx, w.batch)
			if w.ok(err); len(kinds) != 1 {
				w.t.Fatalf("promoted %v", kinds)
			}
		}},
		{name: "beat", indexes: []string{backlogLeased}, run: func() {
			w.ok(w.ledger.Beat(ctx, ledger.Agent{Name: "a"}, time.Minute))
			_, err := w.ledger.Agents(ctx)
			w.ok(err)
		}},
		{name: "standing", indexes: []string{backlogReady, backlogWaiting, backlogLeased, backlogStuck}, counts: true, run: func() {
			_, err := w.ledger.Standing(ctx, "k")
			w.ok(err)
		}},
		{name: "counts", indexes: []string{attemptsFinal, attemptsFailed}, rows: 10 * w.batch, counts: true, run: func() {
			_, err := w.ledger.Counts(ctx, since)
			w.ok(err)
		}},
		{name: "list done", indexes: []string{attemptsFinal}, finished: true, before: w.settle, run: func() {
			_, err := w.Recent(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}}, 50)
			w.ok(err)
		}},
		{name: "find", indexes: []string{itemsIdentity}, run: func() {
			it, err := w.ledger.Find(ctx, "k", "new", w.again[0].Key)
			w.ok(err)
			_, err = w.ledger.Attempts(ctx, it.ID)
			w.ok(err)
		}},
		{name: "prune", indexes: []string{attemptsFinal}, rows: 5 * w.batch, before: func() {
			w.settle()
			_, err := w.Prune(ctx, "k", since, w.batch) // over all that ended, as once a day
			w.ok(err)
		}, run: func() {
			n, err := w.Prune(ctx, "k", time.Now(), w.batch)
			if w.ok(err); n != w.batch {
				w.t.Fatalf("pruned %d", n)
			}
		}},
	}
}
