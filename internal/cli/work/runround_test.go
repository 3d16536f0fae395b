package work

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// handler fails the items with these keys, for good.
type handler []string

func (h handler) Handle(_ context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	if slices.Contains(h, lease.Key) {
		settle(ledger.Result{Outcome: ledger.OutcomeFailed, Error: "no"})
		return
	}
	settle(ledger.Result{Outcome: ledger.OutcomeDone})
}

// TestRoundNews: an item that failed in both rounds is not newly failed, nor is an item that was added in the second.
// An item that failed and is done now has recovered. Other scopes do not count.
func TestRoundNews(t *testing.T) {
	l := ledgertest.Memory(t)
	ctx := t.Context()
	template := ledger.NewItem{Kind: "links", Scope: "a", Every: "1h"}
	must.Do(t)(l.EditKind(ctx, "t", "links", func(k *ledger.Kind, _ bool) { k.MaxFailures = 1 }))
	for _, it := range []struct{ scope, key string }{{"a", "fine"}, {"a", "broken"}, {"a", "breaks"}, {"a", "mended"},
		{"b", "breaks"}} {
		n := template
		n.Scope, n.Key = it.scope, it.key
		must.Do(t)(l.Add(ctx, n))
	}
	round := func(fails ...string) {
		t.Helper()
		ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"links": handler(fails)})
	}
	r := &inputRun{began: time.Now(), Job: &input.Job{Ledger: &app.Opened{Any: l.Ledger},
		Kind: &kinds.Kind{Name: "links"}, Source: &intake.Source{Template: template}}}
	round("broken", "mended")
	l.Clock.Advance(time.Hour)
	added := template
	added.Key = "new"
	must.Do(t)(l.Add(ctx, added))
	round("broken", "breaks", "new")
	n, err := r.roundNews(ctx, false)
	if err != nil || n.NewlyFailed != 1 || n.Recovered != 1 || !n.Counted {
		t.Errorf("%+v, %v", n, err)
	}
	r.Source.Template.Every = ""
	if n, err := r.roundNews(ctx, false); n != nil || err != nil {
		t.Errorf("not recurring: %+v, %v", n, err)
	}
}
