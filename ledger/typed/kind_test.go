package typed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// add adds one value and expects a verdict.
func add(t *testing.T, p place, k typed.Kind[Mail], m Mail, want ledger.Verdict) ledger.Added {
	t.Helper()
	got, err := k.Add(t.Context(), p.Ledger, m)
	if err != nil || got.Verdict != want {
		t.Errorf("%+v: %s, %v; want %s", m, got.Verdict, err, want)
	}
	return got
}

func TestForEver(t *testing.T) {
	places(t, func(t *testing.T, p place) {
		k := typed.Kind[Mail]{Name: "mail", Key: to}
		m := Mail{To: "ada"}
		add(t, p, k, m, ledger.VerdictAdded)
		add(t, p, k, m, ledger.VerdictKnown)
		if got := work(t, p.Ledger, k, typed.Permanent(errors.New("no"))); len(got) != 1 {
			t.Fatalf("worked %v", got)
		}
		add(t, p, k, m, ledger.VerdictKnown) // though it is dead
		if got := work(t, p.Ledger, k, nil); got != nil {
			t.Errorf("worked %v", got)
		}
	})
}

func TestWhileOpen(t *testing.T) {
	k := typed.Kind[Mail]{Name: "mail", Key: to, Once: typed.WhileOpen, Differs: typed.Keep}
	first, second := Mail{To: "ada", Text: "1"}, Mail{To: "ada", Text: "2"}
	endings := map[string]struct {
		answer error
		again  ledger.Verdict
	}{
		"done":     {nil, ledger.VerdictReopened},
		"dead":     {typed.Permanent(errors.New("no")), ledger.VerdictReopened},
		"waiting":  {typed.RetryAfter(time.Hour, errors.New("busy")), ledger.VerdictDiffers},
		"in doubt": {typed.Doubt(errors.New("broken off")), ledger.VerdictKnown},
	}
	places(t, func(t *testing.T, p place) {
		for name, e := range endings {
			k := k
			k.Scope = name
			id := add(t, p, k, first, ledger.VerdictAdded).ID
			add(t, p, k, second, ledger.VerdictDiffers)
			if diff := cmp.Diff([]Mail{first}, work(t, p.Ledger, k, e.answer)); diff != "" {
				t.Fatalf("%s: worked (-want +got):\n%s", name, diff)
			}
			if again := add(t, p, k, second, e.again); again.ID != id {
				t.Errorf("%s: another item", name)
			}
			var want []Mail
			if e.again == ledger.VerdictReopened {
				want = []Mail{second}
			}
			if diff := cmp.Diff(want, work(t, p.Ledger, k, nil)); diff != "" {
				t.Errorf("%s, again: worked (-want +got):\n%s", name, diff)
			}
		}
		k.Scope = "cancelled"
		add(t, p, k, first, ledger.VerdictAdded)
		if n, err := p.Cancel(t.Context(), "test", ledger.Filter{Scopes: []string{"cancelled"}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		add(t, p, k, second, ledger.VerdictReopened)
	})
}

// A value that is added while an attempt runs is worked after it only with Replace.
func TestAddedWhileItRuns(t *testing.T) {
	places(t, func(t *testing.T, p place) {
		for _, tt := range []struct {
			differs typed.Differs
			verdict ledger.Verdict
			state   ledger.State
		}{{typed.Keep, ledger.VerdictDiffers, ledger.StateDone}, {typed.Replace, ledger.VerdictChanged, ledger.StateReady}} {
			k := typed.Kind[Mail]{Name: "mail", Scope: string(tt.verdict), Key: to, Once: typed.WhileOpen, Differs: tt.differs}
			id := add(t, p, k, Mail{To: "ada"}, ledger.VerdictAdded).ID
			leases, err := p.Claim(t.Context(), ledger.Claim{Kind: "mail", Agent: "a", Limit: 1})
			if err != nil || len(leases) != 1 {
				t.Fatal(leases, err)
			}
			add(t, p, k, Mail{To: "ada", Text: "new"}, tt.verdict)
			must.OK(t, p.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0])
			if it, err := p.Get(t.Context(), id); err != nil || it.State != tt.state {
				t.Errorf("%s: %s, %v; want %s", tt.verdict, it.State, err, tt.state)
			}
			work(t, p.Ledger, k, nil)
		}
	})
}

// The period is that of the add, by the clock of the database and in the zone. The time of the end does not matter.
func TestPerPeriod(t *testing.T) {
	places(t, func(t *testing.T, p place) {
		k := typed.Kind[Mail]{Name: "mail", Scope: "news", Key: to, Once: typed.PerPeriod("day", "Europe/Berlin")}
		m := Mail{To: "ada"}
		add(t, p, k, m, ledger.VerdictAdded) // 23:30 there
		add(t, p, k, m, ledger.VerdictKnown)
		p.clock.Advance(time.Hour)
		if got := work(t, p.Ledger, k, nil); len(got) != 1 {
			t.Fatalf("worked %v", got)
		}
		err := p.within(t, func(tx ledger.Conn) error {
			_, err := k.AddTx(t.Context(), p.Ledger, tx, m)
			return err
		})
		must.OK(t, err)
		add(t, p, k, m, ledger.VerdictKnown)
		later := func(n *ledger.NewItem) { n.Due = start.AddDate(0, 0, 3) }
		must.Do(t)(k.Add(t.Context(), p.Ledger, m, later))
		var scopes []string
		for it, err := range p.List(t.Context(), ledger.Filter{}, 0) {
			must.OK(t, err)
			scopes = append(scopes, it.Scope)
		}
		if diff := cmp.Diff([]string{"news/2026-11-20", "news/2026-11-21", "news/2026-11-23"}, scopes); diff != "" {
			t.Errorf("scopes (-want +got):\n%s", diff)
		}
	})
	k := typed.Kind[Mail]{Name: "mail", Once: typed.PerPeriod("fortnight", "")}
	if _, err := k.Item(start, Mail{}); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("a period that is none: %v", err)
	}
}

// A recurring item is added once: another Once would open it again, or add one more for each period.
func TestEveryIsForEver(t *testing.T) {
	l := ledgertest.Memory(t)
	daily := func(n *ledger.NewItem) { n.Every = "day" }
	for _, c := range []struct {
		once typed.Once
		want error
	}{{typed.ForEver, nil}, {typed.WhileOpen, ledger.ErrInvalid}, {typed.PerPeriod("day", ""), ledger.ErrInvalid}} {
		k := typed.Kind[Mail]{Name: "mail", Key: to, Once: c.once}
		if _, err := k.Add(t.Context(), l.Ledger, Mail{To: "ada"}, daily); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.once, err)
		}
	}
}

// AddTx without a transaction does not commit by itself.
func TestWithoutTx(t *testing.T) {
	l := ledgertest.Memory(t)
	for _, k := range []typed.Kind[Mail]{{Name: "mail"}, {Name: "mail", Once: typed.PerPeriod("day", "")}} {
		_, one := k.AddTx(t.Context(), l.Ledger, nil, Mail{})
		_, many := k.AddManyTx(t.Context(), l.Ledger, nil, []Mail{{}})
		for _, err := range []error{one, many} {
			if bad := (*ledger.InvalidError)(nil); !errors.As(err, &bad) || bad.Field != "tx" {
				t.Errorf("%+v: %v", k.Once, err)
			}
		}
	}
	if n, err := l.Count(t.Context(), ledger.Filter{}); n != 0 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
}

// With sees the value, also of AddMany and of Emit, and the functions of a call come after it.
func TestWith(t *testing.T) {
	l := ledgertest.Memory(t)
	k := typed.Kind[Mail]{Name: "mail", Scope: "s", Key: to,
		With: func(m Mail, n *ledger.NewItem) { n.ShardKey, n.Priority = "of "+m.To, 2 }}
	parent := typed.Kind[int]{Name: "parent"}
	must.Do(t)(parent.Add(t.Context(), l.Ledger, 1))
	must.Do(t)(k.AddMany(t.Context(), l.Ledger, []Mail{{To: "a"}, {To: "b"}}))
	must.Do(t)(k.Add(t.Context(), l.Ledger, Mail{To: "c"}, func(n *ledger.NewItem) { n.Priority = -1 }))
	h := parent.Handler(func(ctx context.Context, _ int) error { return typed.Emit(ctx, k, Mail{To: "d"}) })
	ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"parent": h})
	for key, priority := range map[string]int16{"a": 2, "b": 2, "c": -1, "d": 2} {
		it, err := l.Find(t.Context(), "mail", "s", key)
		if err != nil || it.ShardKey != "of "+key || it.Priority != priority {
			t.Errorf("%s: shard key %q, priority %d, %v", key, it.ShardKey, it.Priority, err)
		}
	}
}

func TestDiffers(t *testing.T) {
	places(t, func(t *testing.T, p place) {
		one, other := Mail{To: "ada", Text: "1"}, Mail{To: "ada", Text: "2"}
		k := typed.Kind[Mail]{Name: "mail", Key: to}
		add(t, p, k, one, ledger.VerdictAdded)
		got, err := k.AddMany(t.Context(), p.Ledger, []Mail{other, {To: "ben"}})
		if !errors.Is(err, ledger.ErrConflict) || ledger.Hint(err) == "" {
			t.Errorf("refuse: %v", err)
		}
		if len(got) != 2 || got[0].Verdict != ledger.VerdictDiffers || got[1].Verdict != ledger.VerdictAdded {
			t.Errorf("refuse: %+v", got)
		}
		// In a transaction of the caller's the error takes the rest with it.
		err = p.within(t, func(tx ledger.Conn) error {
			_, err := k.AddManyTx(t.Context(), p.Ledger, tx, []Mail{{To: "cy"}, other})
			return err
		})
		if !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("in a transaction: %v", err)
		}
		ledgertest.NotAdded(t, p.Ledger, nil, k, Mail{To: "cy"})
		if diff := cmp.Diff([]Mail{one, {To: "ben"}}, work(t, p.Ledger, k, nil)); diff != "" {
			t.Errorf("worked (-want +got):\n%s", diff)
		}

		k = typed.Kind[Mail]{Name: "mail", Scope: "replace", Key: to, Differs: typed.Replace}
		add(t, p, k, one, ledger.VerdictAdded)
		add(t, p, k, other, ledger.VerdictChanged)
		add(t, p, k, other, ledger.VerdictKnown)
		if diff := cmp.Diff([]Mail{other}, work(t, p.Ledger, k, nil)); diff != "" {
			t.Errorf("replace: worked (-want +got):\n%s", diff)
		}
		add(t, p, k, one, ledger.VerdictChanged) // of a done item, too
		if diff := cmp.Diff([]Mail{one}, work(t, p.Ledger, k, nil)); diff != "" {
			t.Errorf("replace what is done: worked (-want +got):\n%s", diff)
		}
		plain := typed.Kind[Mail]{Name: "mail", Scope: "plain", Key: to}
		add(t, p, plain, one, ledger.VerdictAdded)
		plain.Differs = typed.Replace
		if _, err := plain.Add(t.Context(), p.Ledger, other); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("replace what has no fingerprint: %v", err)
		}
	})
}

func TestKeys(t *testing.T) {
	l := ledgertest.Memory(t)
	p := place{Ledger: l.Ledger, clock: l.Clock}
	k := typed.Kind[Mail]{Name: "mail"}
	add(t, p, k, Mail{To: "ada"}, ledger.VerdictAdded)
	add(t, p, k, Mail{To: "ada"}, ledger.VerdictKnown)
	add(t, p, k, Mail{To: "ada", Text: "else"}, ledger.VerdictAdded)
	k.Key = typed.Fresh
	add(t, p, k, Mail{To: "ada"}, ledger.VerdictAdded)
	add(t, p, k, Mail{To: "ada"}, ledger.VerdictAdded)
	k.Key = func(Mail) string { return "" }
	if _, err := k.Add(t.Context(), l.Ledger, Mail{}); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("an empty key: %v", err)
	}
	bad := typed.Kind[chan int]{Name: "bad"}
	if _, err := bad.Add(t.Context(), l.Ledger, nil); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("a payload that is no JSON: %v", err)
	}
}

// More values than one call of the ledger takes.
func TestAddManyInBatches(t *testing.T) {
	l := ledgertest.Memory(t)
	vs := make([]int, bounds.MaxBatch+1)
	for i := range vs {
		vs[i] = i
	}
	k := typed.Kind[int]{Name: "number"}
	got, err := k.AddMany(t.Context(), l.Ledger, vs)
	if err != nil || len(got) != len(vs) {
		t.Fatalf("%d, %v", len(got), err)
	}
	if n, err := l.Count(t.Context(), ledger.Filter{}); n != int64(len(vs)) || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
	if got, err := k.AddMany(t.Context(), l.Ledger, nil); len(got) != 0 || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}
