package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Indexes of the tables, as [Call.Indexes] names them: by their names in the schemas. Only the unique key of items
// has another name in each database.
const (
	IndexReady     = "ledger_backlog_ready"
	IndexWaiting   = "ledger_backlog_waiting"
	IndexRecurring = "ledger_items_recurring"
	IndexLeased    = "ledger_backlog_leased"
	IndexStuck     = "ledger_backlog_stuck"
	IndexLanes     = "ledger_backlog_lanes"
	IndexRunning   = "ledger_backlog_running"
	IndexFinal     = "ledger_attempts_final"
	IndexFailed    = "ledger_attempts_failed"
	IndexRest      = "ledger_attempts_rest"
	IndexLost      = "ledger_attempts_lost"
	IndexIdentity  = "items by kind, scope and key"
)

// Call is a call of the hot path. Each of its statements must use its index and read only the rows it is about,
// whatever else the tables hold.
type Call struct {
	Name    string
	Indexes []string // that its statements must use, beside primary keys
	Before  func()   // prepares the call; may be nil
	Run     func()
	Rows    int // the most rows that one of its statements is about
	// Counts: the call counts the backlog and may read all of it where that seems cheaper.
	Counts bool
	// NoPosition: the call begins at no position in its index, so it reads dead entries, too. So do those with Counts.
	NoPosition bool
	// Finished: the call is tested only where many items have finished. Where few have, reading all of them is best.
	Finished bool
}

// Workload is the hot path of a ledger. Its kind k may hold anything.
type Workload struct {
	T      testing.TB
	Store  ledger.Store
	Ledger *ledger.Ledger // of the store
	Batch  int            // items per call
	// Overdue sets a time of these backlog rows to the last second: expires_at of leased items, due_at of waiting
	// ones.
	Overdue func(column string, ids []int64)
	// Settle updates the statistics of the attempts. The calls that read attempts are made for people, now and then,
	// and not when the first items of a kind have just ended.
	Settle func()

	leases []*ledger.Lease // not used yet
	later  []int64         // items that wait
	again  []ledger.NewItem
	added  int
}

func (w *Workload) ok(err error) {
	w.T.Helper()
	must.OK(w.T, err)
}

// items returns a batch of new items.
func (w *Workload) items(kind string, priority int16, due time.Time) []ledger.NewItem {
	items := make([]ledger.NewItem, w.Batch)
	for i := range items {
		w.added++
		items[i] = ledger.NewItem{Kind: kind, Scope: w.T.Name(), Priority: priority, Due: due,
			Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", w.added), Payload: []byte(`{"delimiter":";"}`)}
	}
	return items
}

func (w *Workload) add(items []ledger.NewItem) (ids []int64) {
	w.T.Helper()
	added, err := w.Ledger.Add(w.T.Context(), items...)
	w.ok(err)
	for _, a := range added {
		ids = append(ids, a.ID)
	}
	return ids
}

// Claim claims at least want items, of kind k unless c has another.
func (w *Workload) Claim(c ledger.Claim, want int) {
	w.T.Helper()
	c.Agent, c.Limit = "a", w.Batch
	c.Kind = cmp.Or(c.Kind, "k")
	got, err := w.Ledger.Claim(w.T.Context(), c)
	w.ok(err)
	if len(got) < want {
		w.T.Fatalf("%+v got %d items, want %d", c, len(got), want)
	}
	w.leases = append(w.leases, got...)
}

// use removes a batch of unused leases and returns them.
func (w *Workload) use() (leases []*ledger.Lease) {
	leases, w.leases = w.leases[:w.Batch], w.leases[w.Batch:]
	return leases
}

// Finish ends a batch of claimed items.
func (w *Workload) Finish(result func(i int) ledger.Result) {
	w.T.Helper()
	endings := make([]ledger.Ending, w.Batch)
	for i, ls := range w.use() {
		endings[i] = ledger.Ending{Lease: ls, Result: result(i)}
	}
	w.ok(errors.Join(w.Ledger.Finish(w.T.Context(), endings...)...))
}

// fail makes a batch of dead items of kind wrong.
func (w *Workload) fail() {
	w.T.Helper()
	w.add(w.items("wrong", 0, time.Time{}))
	got, err := w.Ledger.Claim(w.T.Context(), ledger.Claim{Kind: "wrong", Agent: "a", Limit: w.Batch})
	w.ok(err)
	var e []ledger.Ending
	for _, ls := range got {
		e = append(e, ledger.Ending{Lease: ls, Result: ledger.Permanent(errors.New("no"))})
	}
	w.ok(errors.Join(w.Ledger.Finish(w.T.Context(), e...)...))
}

func ids(leases []*ledger.Lease) []int64 {
	all := make([]int64, len(leases))
	for i, ls := range leases {
		all[i] = ls.ID
	}
	return all
}

// Poll makes the calls of an idle worker.
func (w *Workload) Poll() {
	w.T.Helper()
	ctx, l := w.T.Context(), w.Ledger
	w.Claim(ledger.Claim{}, 0)
	w.Claim(ledger.Claim{Shard: scheduler.Shard{Index: 1, Count: 4}}, 0)
	w.Claim(ledger.Claim{LookFirst: true}, 0)
	_, err := l.Expire(ctx, w.Batch)
	w.ok(err)
	_, err = l.Promote(ctx, w.Batch)
	w.ok(err)
	_, err = w.Store.Prune(ctx, "k", time.Now().Add(-time.Hour), w.Batch)
	w.ok(err)
	w.ok(l.Beat(ctx, ledger.Agent{Name: "a"}, time.Minute))
	_, err = l.Standing(ctx, "k")
	w.ok(err)
}

// Calls are the hot path, in an order in which each call finds what it needs.
func (w *Workload) Calls() []Call {
	ctx := w.T.Context()
	ready := []string{IndexReady}
	var named []int64
	calls := []Call{
		{Name: "add new items", Indexes: []string{IndexIdentity}, Run: func() {
			for range 6 {
				w.again = w.items("k", 0, time.Time{})
				w.add(w.again)
			}
		}},
		{Name: "add items for later", Indexes: []string{IndexIdentity}, Run: func() {
			w.later = w.add(w.items("k", 0, time.Now().Add(time.Hour)))
		}},
		{Name: "add known items", Indexes: []string{IndexIdentity}, Run: func() { w.add(w.again); w.add(w.again) }},
		{Name: "add changed items", Indexes: []string{IndexIdentity}, Run: func() {
			for i := range w.again {
				w.again[i].Fingerprint = "2"
			}
			w.add(w.again)
		}},
		{Name: "claim nothing", Indexes: ready, Run: func() {
			w.Claim(ledger.Claim{Kind: "none"}, 0)
			w.Claim(ledger.Claim{Kind: "none"}, 0)
		}},
		{Name: "look for what is ready", Indexes: ready, Run: func() {
			for _, part := range []scheduler.Shard{{}, {Index: 1, Count: 4}} {
				w.Claim(ledger.Claim{Kind: "none", LookFirst: true, Shard: part}, 0)
			}
		}},
		{Name: "claim", Indexes: ready, Run: func() { w.Claim(ledger.Claim{}, w.Batch) }},
		{Name: "claim more", Indexes: ready, Run: func() {
			for range 3 {
				w.Claim(ledger.Claim{}, w.Batch)
			}
		}},
		{Name: "claim a shard", Indexes: ready, Rows: 5 * w.Batch, Run: func() {
			w.Claim(ledger.Claim{Shard: scheduler.Shard{Index: 1, Count: 4}}, 1)
		}},
		{Name: "claim named items", Indexes: ready, Before: func() { named = w.add(w.items("k", 2, time.Time{})) },
			Run: func() { w.Claim(ledger.Claim{Items: named}, w.Batch) }},
		{Name: "resume", Indexes: []string{IndexReady, IndexLeased}, Counts: true, Run: func() {
			_, err := w.Ledger.Claim(ctx, ledger.Claim{Kind: "k", Agent: "person", Limit: 5})
			w.ok(err)
			c := ledger.Claim{Kind: "k", Agent: "person", Limit: 10, Resume: true}
			_, err = w.Ledger.Claim(ctx, c)
			w.ok(err)
			c.Items = named
			_, err = w.Ledger.Claim(ctx, c)
			w.ok(err)
		}},
	}
	for p := int16(bounds.MinPriority); p <= bounds.MaxPriority; p++ {
		kind := fmt.Sprint("level", p+2)
		calls = append(calls, Call{Name: fmt.Sprint("claim of priority ", p), Indexes: ready,
			Before: func() { w.add(w.items(kind, p, time.Time{})) },
			Run:    func() { w.Claim(ledger.Claim{Kind: kind}, w.Batch); w.Claim(ledger.Claim{Kind: kind}, 0) }})
	}
	return slices.Concat(calls, w.endings(), w.tending(), w.deadCalls())
}

// endings are the calls under a lease.
func (w *Workload) endings() []Call {
	ctx := w.T.Context()
	return []Call{
		{Name: "renew", Run: func() {
			_, errs := w.Ledger.Extend(ctx, time.Minute, w.leases[:w.Batch]...)
			w.ok(errors.Join(errs...))
		}},
		{Name: "holders", Run: func() { w.ok(errors.Join(w.Ledger.Held(ctx, w.leases[:w.Batch]...)...)) }},
		{Name: "leases of tokens", Run: func() {
			var tokens []string
			for _, ls := range w.leases[:w.Batch] {
				tokens = append(tokens, ls.FullToken())
			}
			_, errs := w.Ledger.LeasesOf(ctx, tokens...)
			w.ok(errors.Join(errs...))
		}},
		{Name: "start", Run: func() { w.ok(errors.Join(w.Ledger.Start(ctx, time.Minute, w.leases[:w.Batch]...)...)) }},
		{Name: "complete", Run: func() { w.Finish(func(int) ledger.Result { return ledger.Done(nil) }) }},
		{Name: "complete and claim", Indexes: []string{IndexReady}, Run: func() {
			e := make([]ledger.Ending, w.Batch)
			for i, ls := range w.use() {
				e[i] = ledger.Ending{Lease: ls, Result: ledger.Done(nil)}
			}
			errs, got, _, err := w.Ledger.FinishAndClaim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: w.Batch}, e...)
			w.ok(errors.Join(append(errs, err)...))
			w.leases = append(got, w.leases...) // leases of other kinds are used later
		}},
		{Name: "complete with output", Run: func() {
			w.Finish(func(int) ledger.Result { return ledger.Done([]byte("{}")) })
		}},
		{Name: "finish with errors", Run: func() {
			w.Finish(func(i int) ledger.Result {
				return []ledger.Result{ledger.Permanent(errors.New("no")), {Outcome: ledger.OutcomeFailed, Error: "again"},
					ledger.Snooze(time.Hour, ""), ledger.Doubt(errors.New("?"))}[i%4]
			})
		}},
		{Name: "finish and emit", Indexes: []string{IndexIdentity}, Run: func() {
			w.Finish(func(i int) ledger.Result {
				return ledger.Done(nil, ledger.NewItem{Kind: "child", Key: fmt.Sprint(i)})
			})
		}},
	}
}

// deadCalls are those of a person who looks after what failed.
func (w *Workload) deadCalls() []Call {
	ctx := w.T.Context()
	dead := ledger.Filter{Kinds: []string{"wrong"}, States: []ledger.State{ledger.StateDead}}
	counts, err := w.Ledger.Counts(ctx, time.Now())
	w.ok(err)
	stuck := 2 * w.Batch // of these calls
	for _, c := range counts {
		stuck += int(c.Dead + c.Doubt)
	}
	return []Call{
		{Name: "list the dead of a kind", Indexes: []string{IndexStuck}, Rows: stuck, NoPosition: true,
			Before: w.fail, Run: func() {
				recs, err := w.Store.Records(ctx, ledger.RecordQuery{Filter: dead, Limit: 2 * w.Batch, Output: true})
				if w.ok(err); len(recs) != w.Batch {
					w.T.Fatalf("%d are dead", len(recs))
				}
			}},
		// It first looks for the newest item, and a Postgres table without statistics is sorted for that.
		{Name: "retry the dead of a kind", Indexes: []string{IndexStuck}, Rows: 10 * w.Batch, Counts: true, Run: func() {
			n, err := w.Ledger.Retry(ctx, "a", dead)
			if w.ok(err); n != int64(w.Batch) {
				w.T.Fatalf("%d are retried", n)
			}
		}},
	}
}

// tending are the calls that every worker makes now and then.
func (w *Workload) tending() []Call {
	ctx := w.T.Context()
	since := time.Now().Add(-time.Minute)
	return []Call{
		{Name: "look for what expired", Indexes: []string{IndexLeased}, Rows: 5 * w.Batch, Run: func() {
			_, err := w.Ledger.Expire(ctx, w.Batch)
			w.ok(err)
		}},
		{Name: "expire", Indexes: []string{IndexLeased}, Rows: 5 * w.Batch, Before: func() {
			w.Overdue("expires_at", ids(w.use()))
		}, Run: func() {
			n, err := w.Ledger.Expire(ctx, w.Batch)
			if w.ok(err); n != w.Batch {
				w.T.Fatalf("%d expired", n)
			}
		}},
		{Name: "look for what is due", Indexes: []string{IndexWaiting}, Run: func() {
			for range 2 {
				_, err := w.Ledger.Promote(ctx, w.Batch)
				w.ok(err)
			}
		}},
		{Name: "promote", Indexes: []string{IndexWaiting}, Before: func() { w.Overdue("due_at", w.later) }, Run: func() {
			kinds, _, err := w.Store.Promote(ctx, w.Batch)
			if w.ok(err); len(kinds) != 1 {
				w.T.Fatalf("promoted %v", kinds)
			}
		}},
		{Name: "beat", Indexes: []string{IndexLeased}, Run: func() {
			w.ok(w.Ledger.Beat(ctx, ledger.Agent{Name: "a"}, time.Minute))
			_, err := w.Ledger.Agents(ctx)
			w.ok(err)
		}},
		{Name: "look for programs that are gone", Rows: bounds.LapsedMost, Counts: true, Indexes: []string{IndexLeased},
			Before: func() {
				for i := range bounds.LapsedMost {
					w.ok(w.Ledger.Beat(ctx, ledger.Agent{Name: fmt.Sprint("gone ", i)}, time.Microsecond))
				}
			}, Run: func() {
				_, err := w.Ledger.Heartbeats(ctx)
				w.ok(err)
			}},
		{Name: "standing", Indexes: []string{IndexReady, IndexWaiting, IndexLeased, IndexStuck, IndexLanes},
			Counts: true, Run: func() {
				_, err := w.Ledger.Standing(ctx, "k")
				w.ok(err)
			}},
		{Name: "counts", Indexes: []string{IndexReady, IndexWaiting, IndexLeased, IndexStuck, IndexLanes,
			IndexFinal, IndexFailed, IndexRecurring}, Rows: 10 * w.Batch, Counts: true, Run: func() {
			_, err := w.Ledger.Counts(ctx, since)
			w.ok(err)
		}},
		{Name: "list done", Rows: 4 * w.Batch, Indexes: []string{IndexFinal, IndexFailed, IndexRest}, Finished: true,
			Before: w.Settle, Run: func() {
				_, err := w.Ledger.Recent(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}}, 50)
				w.ok(err)
			}},
		{Name: "what ended lately", Rows: 10 * w.Batch, Indexes: []string{IndexFinal, IndexFailed, IndexRest}, Finished: true,
			Before: w.Settle, Run: func() {
				_, err := w.Ledger.Ended(ctx, ledger.EndedQuery{After: ledger.Mark{At: since}, Limit: 50})
				w.ok(err)
			}},
		{Name: "what failed, in pages", Rows: 2 * w.Batch, Indexes: []string{IndexFailed, IndexLost}, Finished: true,
			Before: w.Settle, Run: func() {
				q := ledger.EndedQuery{After: ledger.Mark{At: since.Add(-24 * time.Hour)}, Failed: true, Limit: 10}
				for range 5 {
					page, err := w.Ledger.Ended(ctx, q)
					if w.ok(err); len(page) == 10 {
						q.After = page[9].Mark()
					}
				}
			}},
		{Name: "tallies", Run: func() {
			w.ok(w.Ledger.AddTallies(ctx, stats.Minute{At: since, Kind: "k", Agent: "a", Done: 1}))
			_, err := w.Store.Tallies(ctx, since)
			w.ok(err)
			w.ok(w.Ledger.ForgetTallies(ctx))
		}},
		{Name: "who holds how much", Indexes: []string{IndexLeased}, Counts: true, Run: func() {
			_, err := w.Ledger.LeasedBy(ctx)
			w.ok(err)
		}},
		{Name: "how many come before", Indexes: []string{IndexReady}, Before: func() {
			w.add(w.items("k", -1, time.Time{}))
		}, Run: func() {
			_, err := w.Store.Ahead(ctx, &ledger.Record{ID: 1 << 40, Identity: ledger.Identity{Kind: "k"},
				Work: &ledger.Work{Priority: 2}, Policy: &ledger.Kind{}}, 10)
			w.ok(err)
		}},
		{Name: "find", Indexes: []string{IndexIdentity}, Run: func() {
			it, err := w.Ledger.Find(ctx, "k", w.again[0].Scope, w.again[0].Key)
			w.ok(err)
			_, err = w.Ledger.Attempts(ctx, it.ID)
			w.ok(err)
			_, err = w.Ledger.AttemptsBefore(ctx, it.ID, 0, 10)
			w.ok(err)
			_, err = w.Ledger.LastOutput(ctx, it.ID)
			w.ok(err)
		}},
		{Name: "prune", Indexes: []string{IndexFinal}, Rows: 5 * w.Batch, Before: func() {
			w.Settle()
			_, err := w.Store.Prune(ctx, "k", since, w.Batch) // reads all ended attempts, as a worker does once a day
			w.ok(err)
		}, Run: func() {
			n, err := w.Store.Prune(ctx, "k", time.Now(), w.Batch)
			if w.ok(err); n != w.Batch {
				w.T.Fatalf("pruned %d", n)
			}
		}},
	}
}
