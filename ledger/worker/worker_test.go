package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/process"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

func TestConfig(t *testing.T) {
	good := func() Config {
		return Config{Ledger: ledger.New(memory.New(memory.Options{}), ledger.Options{}),
			Handlers: map[string]Handler{"k": Func(done)}}
	}
	tests := []struct {
		field string // "": the config is valid
		edit  func(*Config)
	}{
		{"", func(*Config) {}},
		{"", func(c *Config) {
			c.Lease, c.Poll, c.Shard = 5*time.Second, time.Second, scheduler.Shard{Index: 3, Count: 4}
		}},
		{"", func(c *Config) { c.Kinds = map[string]KindConfig{"k": {Concurrency: 3, Timeout: time.Second}} }},
		{"ledger", func(c *Config) { c.Ledger = nil }},
		{"ledger", func(c *Config) { c.Ledger = (*ledger.Ledger)(nil) }},
		{"handlers", func(c *Config) { c.Handlers["k"] = Func(nil) }},
		{"", func(c *Config) { c.Handlers = nil }}, // only keeps the ledger in order
		{"quiet", func(c *Config) { c.Quiet = true }},
		{"give_up", func(c *Config) { c.GiveUp = -1 }},
		{"handlers", func(c *Config) { c.Handlers["k"] = nil }},
		{"kind", func(c *Config) { c.Handlers["Not A Kind"] = Func(done) }},
		{"kinds", func(c *Config) { c.Kinds = map[string]KindConfig{"other": {}} }},
		{"concurrency", func(c *Config) { c.Concurrency = -1 }},
		{"concurrency", func(c *Config) { c.Kinds = map[string]KindConfig{"k": {Concurrency: -1}} }},
		{"timeout", func(c *Config) { c.Kinds = map[string]KindConfig{"k": {Timeout: -1}} }},
		{"lease", func(c *Config) { c.Lease = 5*time.Second - 1 }},
		{"lease", func(c *Config) { c.Lease = 25 * time.Hour }},
		{"grace", func(c *Config) { c.Grace = -1 }},
		{"poll", func(c *Config) { c.Poll = time.Second + 1 }},
		{"poll", func(c *Config) { c.Poll = -1 }},
		{"max_items", func(c *Config) { c.MaxItems = -1 }},
		{"shard", func(c *Config) { c.Shard = scheduler.Shard{Index: 4, Count: 4} }},
		{"shard", func(c *Config) { c.Shard = scheduler.Shard{Index: -1, Count: 4} }},
		{"shard", func(c *Config) { c.Shard = scheduler.Shard{Index: 0, Count: 1025} }},
	}
	for _, tt := range tests {
		c := good()
		tt.edit(&c)
		_, err := New(c)
		bad := (*ledger.InvalidError)(nil)
		if field := ""; errors.As(err, &bad) {
			if field = bad.Field; field != tt.field {
				t.Errorf("field %q is refused (%v), want %q", field, err, tt.field)
			}
		} else if err != nil || tt.field != "" {
			t.Errorf("%v, want %q to be refused", err, tt.field)
		}
	}
}

func TestAgentNamesDiffer(t *testing.T) {
	a, b := agentName(), agentName()
	if a == b || strings.Count(a, "/") != 2 {
		t.Errorf("names %q and %q", a, b)
	}
}

// The ledger shows which agent works which kinds as long as the worker lives.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.run(r.worker(Func(done), func(c *Config) {
			c.Agent, c.Version = "me", "1.2.3"
			c.Kinds = map[string]KindConfig{"k": {Definition: "thumbs@1.0.0+abcdef"}}
		}))
		elapse(5 * time.Minute)
		agents, err := r.Agents(t.Context())
		must.OK(t, err)
		host, _ := os.Hostname()
		want := []ledger.Agent{{Name: "me", Host: host, PID: os.Getpid(), Process: process.This(), Version: "1.2.3",
			Kinds: map[string]string{"k": "thumbs@1.0.0+abcdef"}, Stalled: map[string]time.Time{}, Configs: map[string]string{},
			Plugins: map[string]health.Plugin{}}}
		same(t, "agents", want, agents, cmpopts.IgnoreFields(ledger.Agent{}, "StartedAt", "SeenAt"))
		if age := time.Since(agents[0].SeenAt); age > 10*time.Second {
			t.Errorf("the newest beat is %s old", age)
		}
		stop()
		if agents, err := r.Agents(t.Context()); len(agents) != 0 || err != nil {
			t.Errorf("agents after the end: %v, %v", agents, err)
		}
	})
}

// A quiet worker takes back leases and makes items ready, and is not among the agents.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.run(r.worker(nil, func(c *Config) { c.Handlers, c.Quiet = nil, true }))
		r.add(ledger.NewItem{Key: "leased"})
		c := ledger.Claim{Kind: "k", Agent: "ann", Limit: 1, TTL: 10 * time.Second}
		must.Do(t)(r.Claim(t.Context(), c))
		r.add(ledger.NewItem{Key: "due", Due: time.Now().Add(10 * time.Second)})
		for i := range 500 { // items that become due one after the other
			r.add(ledger.NewItem{Key: fmt.Sprint(i), Due: time.Now().Add(time.Duration(i) * 20 * time.Millisecond)})
		}
		elapse(15 * time.Second)
		for id := range int64(2) {
			if it := r.item(id + 1); it.State != ledger.StateReady {
				t.Errorf("%s is %s", it.Key, it.State)
			}
		}
		if agents, err := r.Agents(t.Context()); len(agents) != 0 || err != nil {
			t.Errorf("agents: %v, %v", agents, err)
		}
		stop()
		if n := r.store.calls["promote"]; n > 15 {
			t.Errorf("%d rounds of upkeep in 15 seconds", n)
		}
	})
}

// changing is a handler whose version changes.
type changing struct {
	Func
	definition atomic.Pointer[string]
}

func (c *changing) Config() string     { return "{}" }
func (c *changing) Definition() string { return *c.definition.Load() }

// A kind's definition may change while the worker runs; then other agents are told.
func TestHeartbeatOfDefined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := &changing{Func: done}
		for _, definition := range []string{"thumbs@1.0.0+abcdef", "thumbs@1.1.0+abcdef"} {
			h.definition.Store(&definition)
			if definition == "thumbs@1.0.0+abcdef" {
				defer r.run(r.worker(h, func(c *Config) { c.Kinds = map[string]KindConfig{"k": {Definition: "not asked"}} }))()
			}
			elapse(time.Minute)
			agents, err := r.Agents(t.Context())
			if err != nil || len(agents) != 1 || agents[0].Kinds["k"] != definition {
				t.Errorf("agents %+v, %v; want %s", agents, err, definition)
			}
		}
	})
}

// A worker that starts while the ledger is unavailable waits for it.
func TestStartWhileLedgerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		r.store.away()
		time.AfterFunc(time.Minute, r.store.back)
		stop := r.run(r.worker(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			if r.log.count("the ledger is available again") == 0 {
				t.Error("an item is worked, and the outage goes on")
			}
			return done(ctx, ls)
		})))
		elapse(2 * time.Minute)
		stop()
		if got := r.item(id).State; got != ledger.StateDone {
			t.Errorf("item is %s", got)
		}
		if n := r.log.count("the ledger is unavailable"); n != 1 {
			t.Errorf("the outage was logged %d times", n)
		}
	})
}

// A worker with GiveUp ends with the error, whether the ledger becomes unavailable before it starts or while it works.
func TestGiveUp(t *testing.T) {
	for name, awayAfter := range map[string]time.Duration{"from the start": 0, "while it works": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.addMany(3)
				w := r.worker(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
					<-ctx.Done()
					return ledger.Fail(context.Cause(ctx))
				}), func(c *Config) { c.GiveUp, c.Grace = 30*time.Second, time.Second })
				if awayAfter == 0 {
					r.store.away()
				} else {
					time.AfterFunc(awayAfter, r.store.away)
				}
				began := time.Now()
				_, err := w.Drain(t.Context(), 0)
				took := time.Since(began)
				if !errors.Is(err, ledger.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
					t.Errorf("ended with %v", err)
				}
				if least := awayAfter + 30*time.Second; took < least || took > least+30*time.Second {
					t.Errorf("ended after %s", took)
				}
				if n := r.log.count("could not be recorded"); n > 1 {
					t.Errorf("logged %d times", n)
				}
			})
		})
	}
}

// A worker does not give up while ends are recorded, though its renewals fail for longer. That outage is one, though
// reads succeed meanwhile.
func TestNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(50)
		r.store.failing(func(call string) error {
			if call == "renew" {
				return ledger.ErrUnavailable
			}
			return nil
		})
		w := r.worker(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			if ls.Key == "000000" {
				<-time.After(49 * time.Second) // its renewals fail after 20 s
			}
			<-time.After(time.Second)
			return ledger.Done(nil)
		}), func(c *Config) { c.GiveUp, c.Lease, c.Concurrency = 10*time.Second, time.Minute, 2 })
		if rep, err := w.Drain(t.Context(), 0); err != nil || rep.Outcomes[ledger.OutcomeDone] != 50 {
			t.Errorf("%+v, %v", rep, err)
		}
		if n := r.log.count("available again"); n > 0 {
			t.Errorf("the outage ended %d times while renewals failed", n)
		}
	})
}

// If the database cannot be used when work ends, the worker stops, and records what was done once the database is back.
func TestDoneWhileDatabaseIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		calls := 0
		w := r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			r.store.failing(func(string) error {
				if calls++; calls < 5 {
					return fmt.Errorf("%w: there is no such database", ledger.ErrInvalid)
				}
				return nil
			})
			return ledger.Done([]byte("1"))
		}))
		if err := w.Run(t.Context()); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("Run: %v", err)
		}
		all, err := r.Attempts(t.Context(), id)
		must.OK(t, err)
		if last := all[len(all)-1]; last.Outcome != ledger.OutcomeDone || string(last.Output) != "1" {
			t.Errorf("the attempt is %s, %s, with output %s", last.Outcome, last.Code, last.Output)
		}
	})
}

// A worker without handlers keeps the ledger in order for all kinds: due, expired and old items.
func TestWithoutHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{OnLost: ledger.OnLostDoubt})
		ids := r.add(ledger.NewItem{Key: "started"}, ledger.NewItem{Key: "later", Due: time.Now().Add(10 * time.Second)})
		leases, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "dead", Limit: 1, TTL: 5 * time.Second})
		if err != nil || len(leases) != 1 {
			t.Fatal(leases, err)
		}
		for _, err := range r.Start(t.Context(), 5*time.Second, leases...) {
			must.OK(t, err)
		}
		stop := r.run(r.worker(nil, func(c *Config) { c.Handlers = nil }))
		elapse(15 * time.Second)
		stop()
		for i, want := range []ledger.State{ledger.StateDoubt, ledger.StateReady} {
			if got := r.item(ids[i]).State; got != want {
				t.Errorf("item %d is %s, want %s", i, got, want)
			}
		}
		if _, err := r.worker(nil, func(c *Config) { c.Handlers = nil }).Drain(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
}

// A worker that is stopped while it starts leaves no heartbeat behind.
func TestStopDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		r.store.failing(func(call string) error {
			if call == "kinds" { // after the first beat
				cancel()
				return ledger.ErrUnavailable
			}
			return nil
		})
		must.OK(t, r.worker(Func(done)).Run(ctx))
		if agents, err := r.Agents(t.Context()); len(agents) != 0 || err != nil {
			t.Errorf("agents: %v, %v", agents, err)
		}
	})
}

// A worker that is stopped before the ledger was available returns no error.
func TestStopBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.away()
		stop := r.run(r.worker(Func(done)))
		elapse(time.Minute)
		stop()
	})
}

// Any worker ends the expired leases of others, also of other kinds. After an outage, live workers get the time to
// renew their leases before these are taken.
func TestExpiryWaitsAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Kind: "other", Key: "a"})[0]
		ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "other", Agent: "alive", Limit: 1, TTL: time.Minute})
		must.OK(t, err)
		stop := r.run(r.worker(Func(done)))
		elapse(10 * time.Second)
		r.store.away()
		elapse(2 * time.Minute)
		r.store.back()
		elapse(19 * time.Second)
		if _, errs := r.Extend(t.Context(), time.Minute, ls...); errs[0] != nil {
			t.Errorf("renewal after the outage: %v", errs[0])
		}
		elapse(80 * time.Second) // in the end it is taken
		if got := r.item(id); got.State != ledger.StateReady || got.Outcome != ledger.OutcomeLost {
			t.Errorf("item is %s after %s", got.State, got.Outcome)
		}
		stop()
	})
}

// A program through which others reach the ledger was away for longer than their leases. Once it is back, they have the
// time to report before their leases are taken.
func TestExpiryWaitsAfterStart(t *testing.T) {
	for _, lends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.add(ledger.NewItem{Kind: "other", Key: "a"})
			ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "other", Agent: "alive", Limit: 1, TTL: time.Minute})
			must.OK(t, err)
			elapse(2 * time.Minute)
			stop := r.run(r.worker(Func(done), func(c *Config) { c.Lends = lends }))
			elapse(19 * time.Second)
			_, errs := r.Extend(t.Context(), time.Minute, ls...)
			if taken := errors.Is(errs[0], ledger.ErrLeaseLost); taken == lends || errs[0] != nil && !taken {
				t.Errorf("lends %t: renewal %v", lends, errs[0])
			}
			stop()
		})
	}
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := &r.worker(Func(done)).outage
		away := ledger.ErrUnavailable
		ttl := time.Minute
		check := func(when string, recent bool, began, ended int) {
			t.Helper()
			if got := o.recent(ttl); got != recent {
				t.Errorf("%s: recent = %v", when, got)
			}
			if b, e := r.log.count("is unavailable"), r.log.count("available again"); b != began || e != ended {
				t.Errorf("%s: logged %d and %d times, want %d and %d", when, b, e, began, ended)
			}
		}
		o.note("claim", nil)
		check("at first", false, 0, 0)
		o.note("claim", away)
		o.note("renew", away)
		o.note("claim", away)
		check("while away", true, 1, 0)
		o.note("claim", nil)
		check("while some calls fail", true, 1, 0)
		elapse(10 * time.Second)
		o.note("renew", nil)
		check("after a short one", false, 1, 1)
		o.note("finish", away)
		elapse(20 * time.Second)
		o.note("finish", nil)
		check("after a long one", true, 2, 2)
		elapse(ttl / 3)
		check("a while after a long one", false, 2, 2)
		o.note("start", away) // "start" is never tried again
		elapse(failingFor + 1)
		o.note("claim", nil)
		check("after a call that is not repeated", false, 3, 3)
	})
}

// An outage ends with the calls that go on: a check of a lease is not made again once its item has ended.
func TestOutageEndsWithoutCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add(ledger.NewItem{Key: "a"})
		stop := r.run(r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			elapse(12 * time.Second)
			r.store.away()
			elapse(3 * time.Second)
			r.store.back()
			return ledger.Done(nil)
		})))
		elapse(18 * time.Second)
		if a, b := r.log.count("is unavailable"), r.log.count("available again"); a != 1 || b != 1 {
			t.Errorf("the outage was logged %d times, its end %d times", a, b)
		}
		stop()
	})
}

// Every worker prunes regularly.
func TestPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Keep: time.Hour})
		id := r.add(ledger.NewItem{Key: "a", Payload: []byte("x")})[0]
		stop := r.run(r.worker(Func(done)))
		elapse(50 * time.Minute)
		if r.item(id).Payload == nil {
			t.Error("pruned too early")
		}
		elapse(20 * time.Minute)
		if r.item(id).Payload != nil {
			t.Error("not pruned")
		}
		stop()
	})
}

// The values of the caller's context reach the handler; its end does not.
func TestContextOfHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		r := newRig(t)
		r.add(ledger.NewItem{Key: "a"})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		var lasted atomic.Int64
		w := r.worker(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			if ctx.Value(key{}) != "value" {
				t.Error("the caller's values are missing")
			}
			began := time.Now()
			<-ctx.Done()
			lasted.Store(int64(time.Since(began)))
			return ledger.Done(nil)
		}), func(c *Config) { c.Grace = time.Minute })
		time.AfterFunc(10*time.Second, cancel)
		must.OK(t, w.Run(ctx))
		if got := time.Duration(lasted.Load()); got != 70*time.Second {
			t.Errorf("the handler's context lasted %s, want 10 s and the grace", got)
		}
	})
}
