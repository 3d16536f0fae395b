// Package storetest is the specification of a ledger store: one suite that every store passes, and a comparison of a
// store with the one in memory under random operations.
//
// The suite calls a store through package ledger, so it tests both: the users of a ledger see the same on every
// database.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// Open makes an empty store and closes it when the test ends. now replaces the database's clock, unless it is nil.
type Open func(t testing.TB, now func() time.Time) ledger.Store

// storeCase tests one promise on a ledger of its own.
type storeCase struct {
	name string
	fn   func(t *testing.T, h *harness)
}

// Run runs all cases, each on a ledger of its own, and the tests of concurrent callers.
func Run(t *testing.T, open Open) {
	for _, c := range append(slices.Concat(exchangeCases, limitCases, roundCases, outageCases, journalCases), []storeCase{
		{"AddAnswersPerItem", addAnswersPerItem},
		{"TryLeavesNoTrace", tryLeavesNoTrace}, {"AddKeepsItsPlace", addKeepsItsPlace},
		{"AddTable", addTable},
		{"AddReopens", addReopens},
		{"AddRecurring", addRecurring},
		{"AddBatchWithDuplicates", addBatchWithDuplicates},
		{"AddLimits", addLimits},
		{"AddManyFields", addManyFields}, {"AddTrace", addTrace},
		{"ClaimOrder", claimOrder},
		{"ClaimLimitsAndKinds", claimLimitsAndKinds},
		{"ClaimShards", claimShards},
		{"ClaimResume", claimResume},
		{"ClaimAlone", claimAlone},
		{"ClaimPaused", claimPaused},
		{"ClaimNamed", claimNamed}, {"ClaimNamedResume", claimNamedResume}, {"ClaimNamedAlone", claimNamedAlone},
		{"FinishOutcomes", finishOutcomes},
		{"FinishIsFenced", finishIsFenced},
		{"FinishTwice", finishTwice},
		{"LeaseByToken", leaseByToken}, {"LeasesOf", leasesOf}, {"Unclaim", unclaim},
		{"FinishBatchIsHonest", finishBatchIsHonest},
		{"FinishLateButUnclaimed", finishLateButUnclaimed},
		{"FinishLimits", finishLimits}, {"SnoozeAtMost", snoozeAtMost},
		{"FinishEmits", finishEmits},
		{"FailuresBackOffAndDie", failuresBackOffAndDie},
		{"CrashesDie", crashesDie},
		{"LossesDie", lossesDie},
		{"RenewKeeps", renewKeeps}, {"AttemptTimes", attemptTimes},
		{"ExpireGivesBack", expireGivesBack},
		{"GoneGivesBack", goneGivesBack},
		{"GoneAndBack", goneAndBack},
		{"DoubtOnlyStarted", doubtOnlyStarted},
		{"DoubtLateReport", doubtLateReport},
		{"DoubtDecided", doubtDecided},
		{"DoubtReopen", doubtReopen},
		{"NoReportIsDoubt", noReportIsDoubt},
		{"CancelQueued", cancelQueued},
		{"CancelRunning", cancelRunning}, {"CancelReason", cancelReason},
		{"ChangeWhileLeased", changeWhileLeased},
		{"RetryAndReopen", retryAndReopen},
		{"RetryFirst", retryFirst},
		{"Place", place}, {"PlaceForRound", placeForRound},
		{"DecideMany", decideMany},
		{"ForceRelease", forceRelease},
		{"ActsAreChecked", actsAreChecked}, {"ActsByOutput", actsByOutput},
		{"CancelInDoubt", cancelInDoubt},
		{"CancelRecurring", cancelRecurring}, {"CancelVersions", cancelVersions},
		{"RecurringWhileLeased", recurringWhileLeased},
		{"RecurringInDoubt", recurringInDoubt},
		{"RecurringCounters", recurringCounters},
		{"RecurringClockBack", recurringClockBack},
		{"RecurringReopenedClockBack", recurringReopenedClockBack},
		{"TwoLeasesOfOneItem", twoLeasesOfOneItem},
		{"AddTakesWhatItIsGiven", addTakesWhatItIsGiven},
		{"PutOff", putOff}, {"PutOffOnce", putOffOnce}, {"AddNotBefore", addNotBefore}, {"PromoteDue", promoteDue},
		{"PromoteInTurn", promoteInTurn},
		{"RecurringDaily", recurringDaily},
		{"RecurringFailsToNext", recurringFailsToNext},
		{"RecurringRetried", recurringRetried},
		{"RecurringOncePerPeriod", recurringOncePerPeriod},
		{"PruneKeepsIdentity", pruneKeepsIdentity},
		{"ReopenPruned", reopenPruned},
		{"PruneRecurring", pruneRecurring},
		{"PruneClockBack", pruneClockBack}, {"PruneByDefault", pruneByDefault},
		{"PruneOlder", pruneOlder},
		{"ForgetScope", forgetScope},
		{"KindPolicy", kindPolicy},
		{"DefineConflicts", defineConflicts}, {"DefineTogether", defineTogether},
		{"Defaults", defaults}, {"ReopenedPayload", reopenedPayload},
		{"Standing", standing},
		{"Agents", agents}, {"Lapsed", lapsed},
		{"AgentSlots", agentSlots},
		{"KeysOfMany", keysOfMany},
		{"Filters", filters},
		{"ListPages", listPages},
		{"Recent", recent},
		{"CountsByKind", countsByKind},
		{"Ended", ended},
		{"LastOutput", lastOutput}, {"AttemptsInParts", attemptsInParts},
		{"Tallies", tallies},
		{"Stats", ledgerStats},
		{"Groups", groups},
		{"Sources", sources},
		{"Times", times},
		{"WhySentences", whySentences},
		{"SubscribeHints", subscribeHints},
		{"AttemptNumbersGoOn", attemptNumbersGoOn}, {"Restored", restored}, {"RestoredMany", restoredMany},
		{"OfEnvironment", ofEnvironment},
		{"LocksExclude", locksExclude},
		{"LocksExpire", locksExpire},
		{"LocksAtLeast", locksAtLeast},
		{"LocksForceRelease", locksForceRelease},
		{"LocksLimits", locksLimits},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, open)
			c.fn(t, h)
			h.verify()
		})
	}
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, open) })
	t.Run("ConcurrentAdds", func(t *testing.T) { concurrentAdds(t, open) })
	t.Run("ConcurrentLocks", func(t *testing.T) { concurrentLocks(t, open) })
	t.Run("ConcurrentResume", func(t *testing.T) { concurrentResume(t, open) })
	t.Run("ConcurrentNamed", func(t *testing.T) { concurrentNamed(t, open) })
	t.Run("ConcurrentLimits", func(t *testing.T) { concurrentLimits(t, open) })
}

// clock is a database clock that a test sets.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// start is a Friday.
var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// harness is a ledger over one empty store, with a clock that the test sets and without random numbers.
type harness struct {
	t     *testing.T
	ctx   context.Context
	l     *ledger.Ledger
	store ledger.Store
	clock *clock
}

func newHarness(t *testing.T, open Open) *harness {
	c := &clock{t: start}
	store := open(t, c.now)
	return &harness{t: t, ctx: t.Context(), store: store, clock: c,
		l: ledger.New(store, ledger.Options{Jitter: func() float64 { return 1 }, Gone: gone})}
}

// verify checks the ledger's invariants. It runs after every case.
func (h *harness) verify() {
	h.t.Helper()
	for v, err := range h.l.Verify(h.ctx) {
		if err != nil {
			h.t.Fatalf("verify: %v", err)
		}
		h.t.Errorf("verify: %s, item %d: %s", v.Rule, v.ItemID, v.Text)
	}
}

func (h *harness) ok(err error) {
	h.t.Helper()
	must.OK(h.t, err)
}

// extend extends leases by a minute.
func (h *harness) extend(leases ...*ledger.Lease) []error {
	_, errs := h.l.Extend(h.ctx, time.Minute, leases...)
	return errs
}

// is fails unless err matches want. A nil want means no error.
func (h *harness) is(err, want error) {
	h.t.Helper()
	if !errors.Is(err, want) {
		h.t.Fatalf("got error %v, want %v", err, want)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (h *harness) add(items ...ledger.NewItem) []ledger.Added {
	h.t.Helper()
	a, err := h.l.Add(h.ctx, items...)
	h.ok(err)
	return a
}

// addOne adds a single item of kind "k" and returns its id.
func (h *harness) addOne(key string) int64 {
	h.t.Helper()
	return h.add(ledger.NewItem{Kind: "k", Key: key})[0].ID
}

// addMany adds n items of kind "k".
func (h *harness) addMany(n int) []ledger.Added {
	h.t.Helper()
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprintf("key-%05d", i)}
	}
	return h.add(items...)
}

func (h *harness) claim(kind string, n int) []*ledger.Lease {
	h.t.Helper()
	ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: kind, Agent: "a", Limit: n})
	h.ok(err)
	return ls
}

// claimOne claims exactly one item.
func (h *harness) claimOne(kind string) *ledger.Lease {
	h.t.Helper()
	ls := h.claim(kind, 1)
	if len(ls) != 1 {
		h.t.Fatalf("claimed %d items of %s, want 1", len(ls), kind)
	}
	return ls[0]
}

func (h *harness) finish(ls *ledger.Lease, r ledger.Result) error {
	return h.l.Finish(h.ctx, ledger.Ending{Lease: ls, Result: r})[0]
}

// end is finish, and fails if it is refused.
func (h *harness) end(ls *ledger.Lease, r ledger.Result) {
	h.t.Helper()
	h.ok(h.finish(ls, r))
}

func (h *harness) item(id int64) ledger.Item {
	h.t.Helper()
	it, err := h.l.Get(h.ctx, id)
	h.ok(err)
	return it
}

func (h *harness) wantState(id int64, want ledger.State) ledger.Item {
	h.t.Helper()
	it := h.item(id)
	if it.State != want {
		h.t.Fatalf("item %d is %s, want %s", id, it.State, want)
	}
	return it
}

// outcomes returns the outcomes of an item's attempts, oldest first.
func (h *harness) outcomes(id int64) []ledger.Outcome {
	h.t.Helper()
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	var out []ledger.Outcome
	for i, a := range as {
		if i > 0 && a.Attempt != as[i-1].Attempt+1 {
			h.t.Fatalf("attempt %d follows %d", a.Attempt, as[i-1].Attempt)
		}
		out = append(out, a.Outcome)
	}
	return out
}

// pass advances the clock, then expires and promotes as workers do.
func (h *harness) pass(d time.Duration) {
	h.t.Helper()
	h.clock.advance(d)
	_, err := h.l.Expire(h.ctx, 1000)
	h.ok(err)
	_, err = h.l.Promote(h.ctx, 1000)
	h.ok(err)
}

func (h *harness) policy(k ledger.Kind) {
	h.t.Helper()
	h.ok(h.l.SetKind(h.ctx, "test", k))
}
