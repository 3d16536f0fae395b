package attention

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// The proposed command retries the most frequent cause of all dead items. If several causes have its code, the command
// names the cause, so that it retries no items of the others.
func TestCausesOfAll(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	defer l.Close()
	fail := func(n int, code, message string) {
		for i := range n {
			must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(code, message, i)}))
		}
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: n})
		if err != nil || len(leases) != n {
			t.Fatal(len(leases), err)
		}
		var ends []ledger.Ending
		for _, lease := range leases {
			ends = append(ends, ledger.Ending{Lease: lease,
				Result: ledger.Result{Outcome: ledger.OutcomeFailed, Code: code, Error: message, Final: true}})
		}
		must.OK(t, errors.Join(l.Finish(t.Context(), ends...)...))
	}
	fail(40, "outage", "refused")
	fail(20, "bad_input", "no header")
	dead := stats.Counts{Kind: "k", Dead: 60}
	what, next, err := DeadOf(t.Context(), l, dead)
	if err != nil || what != "k: 60 dead: 40 × outage (refused), 20 × bad_input" || !strings.Contains(next, "code:outage'") {
		t.Error(what, next, err)
	}
	fail(5, "outage", "timed out")
	what, next, err = DeadOf(t.Context(), l, dead)
	if err != nil || !strings.Contains(what, "5 × outage (timed out)") || !strings.Contains(next, "state:dead cause:") {
		t.Errorf("two causes with one code, and the act is about both: %s; %s; %v", what, next, err)
	}
}

// The first time of a cause is when its first item began to fail; its last time is the end of the newest attempt.
func TestFailuresSince(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	began := now
	l := ledger.New(memory.New(memory.Options{Now: func() time.Time { return now }}), ledger.Options{})
	defer l.Close()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a", Every: "day"}))
	for range 3 {
		must.Do(t)(l.Promote(t.Context(), 1))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
		if err != nil || len(leases) != 1 {
			t.Fatal(len(leases), err)
		}
		must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: leases[0],
			Result: ledger.Permanent(errors.New("gone"))})[0])
		now = now.Add(24 * time.Hour)
	}
	var causes report.Failures
	must.OK(t, answer.AddFailures(t.Context(), l, &ledger.Walk{}, &causes))
	list := causes.List()
	if len(list) != 1 || !list[0].First.Equal(began) || !list[0].Last.Equal(began.Add(48*time.Hour)) {
		t.Errorf("causes %+v, want one from %s on", list, began)
	}
}
